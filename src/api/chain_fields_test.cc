// The fields of the sampling chain: what is refused, what reaches the engine, what breakers become.
#include "api/chain_fields.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "api/testing/fake_service.h"
#include "sampling/chain.h"

namespace invar::api {
namespace {

using testing::HasSubstr;

constexpr char kChat[] = "/v1/chat/completions";
constexpr char kCompletions[] = "/v1/completions";

std::string body_of(const char* path, const std::string& members) {
  return (path == std::string(kChat) ? R"({"messages":[{"role":"user","content":"Hi"}],)"
                                     : R"({"prompt":"Hi",)") +
         members + "}";
}

void expect_refused(const std::string& members, const std::string& param, const std::string& part) {
  for (const char* path : {kChat, kCompletions}) {
    SCOPED_TRACE(path + (" " + members.substr(0, 200)));
    FakeService fake;
    int status = 0;
    const json::value reply = fake.post_json(path, body_of(path, members), &status);
    ASSERT_EQ(status, 400);
    EXPECT_EQ(reply.at("error").at("param").as_string(), param);
    EXPECT_THAT(std::string(reply.at("error").at("message").as_string()), HasSubstr(part));
    EXPECT_TRUE(fake.submitted.empty());
  }
}

SamplingParams params_of(FakeService& fake, const std::string& members) {
  fake.submitted.clear();
  const auto exchange = fake.post_exchange(kChat, body_of(kChat, members));
  EXPECT_EQ(fake.submitted.size(), 1u) << members;
  return fake.submitted.empty() ? SamplingParams() : fake.submitted[0]->request.sampling;
}

TEST(ChainFields, out_of_range_is_400_with_field_and_range) {
  const struct {
    const char* field;
    const char* value;
    const char* part;
  } cases[] = {
      {"typical_p", "1.5", "not within 0 and 1"},
      {"typical_p", "\"x\"", "must be a number"},
      {"top_n_sigma", "-2", "not within -1 and 100"},
      {"top_n_sigma", "1e9", "not within -1 and 100"},
      {"xtc_probability", "-0.5", "not within 0 and 1"},
      {"xtc_threshold", "2", "not within 0 and 1"},
      {"dynatemp_range", "2.5", "not within 0 and 2"},
      {"dynatemp_exponent", "-1", "not within 0 and 10"},
      {"dry_multiplier", "-1", "not within 0 and 100"},
      {"dry_base", "0.5", "not within 1 and 100"},
      {"dry_allowed_length", "-1", "not within 0 and"},
      {"dry_allowed_length", "1.5", "must be an integer"},
      {"dry_penalty_last_n", "-2", "not within -1 and"},
      {"dry_sequence_breakers", "\"x\"", "must be an array"},
      {"mirostat", "3", "not within 0 and 2"},
      {"mirostat", "true", "must be an integer"},
      {"mirostat_tau", "-1", "not within 0 and 100"},
      {"mirostat_eta", "1.5", "not within 0 and 1"},
      {"repeat_last_n", "-2", "not within -1 and"},
      {"repeat_last_n", "99999999999", "not within -1 and"},
      {"min_tokens", "-1", "not within 0 and"},
      {"samplers", "5", "must be an array of names or a string of letters, not an integer"},
  };
  for (const auto& c : cases)
    expect_refused(fmt::format("\"{}\":{}", c.field, c.value), c.field, c.part);
}

TEST(ChainFields, contradictions_are_400) {
  expect_refused(R"("min_tokens":9,"max_tokens":8)", "min_tokens", "more than the 8 tokens that max_tokens");
  expect_refused(R"("min_tokens":100000)", "min_tokens", "more than the");
  expect_refused(R"("temperature":0,"dynatemp_range":0.5)", "dynatemp_range", "contradicts temperature 0");
}

TEST(ChainFields, an_unknown_or_repeated_link_is_400_that_lists_the_known_ones) {
  expect_refused(R"("samplers":["top_k","top_q"])", "samplers",
                 "\"top_q\" is unknown; there are " + link_names());
  expect_refused(R"("samplers":["top_k","dry","top_k"])", "samplers", "comes twice");
  expect_refused(R"("samplers":["top_k",5])", "samplers[1]", "must be a string");
}

TEST(ChainFields, a_string_of_letters_is_an_order_too) {
  FakeService fake;
  const std::string_view links[] = {"penalties", "dry",   "top_n_sigma", "top_k",      "typ_p",
                                    "top_p",     "min_p", "xtc",         "temperature"};
  EXPECT_EQ(params_of(fake, R"("samplers":"edskypmxt")").chain, *chain_of(links)) << "llama.cpp's own order";
  EXPECT_EQ(params_of(fake, R"("samplers":"kt")").chain,
            params_of(fake, R"("samplers":["top_k","temperature"])").chain);
  EXPECT_EQ(params_of(fake, R"("samplers":"")").chain, params_of(fake, R"("samplers":[])").chain);
  expect_refused(R"("samplers":"kit")", "samplers",
                 "\"i\" is unknown; in a string each letter is a link: e (penalties), d (dry)");
  expect_refused(R"("samplers":"ktk")", "samplers", "\"top_k\" comes twice");
  expect_refused("\"samplers\":\"" + std::string(100'000, 'k') + "\"", "samplers", "\"top_k\" comes twice");
  expect_refused(R"("samplers":"\u00e9")", "samplers", "is unknown");
}

TEST(ChainFields, lists_are_bounded) {
  std::string many;
  for (int i = 0; i < 5000; ++i)
    many += fmt::format("{}\"s{}\"", i ? "," : "", i);
  expect_refused("\"samplers\":[" + many + "]", "samplers", "5000 names");
  expect_refused("\"dry_sequence_breakers\":[" + many + "]", "dry_sequence_breakers", "at most 16");
  expect_refused(R"("dry_sequence_breakers":["a",""])", "dry_sequence_breakers[1]", "is empty");
  expect_refused("\"dry_sequence_breakers\":[\"" + std::string(65, 'x') + "\"]", "dry_sequence_breakers[0]",
                 "at most 64");
}

TEST(ChainFields, reach_the_engine) {
  FakeService fake;
  const SamplingParams p =
      params_of(fake, R"("typical_p":0.5,"top_n_sigma":1.5,"xtc_probability":0.25,"xtc_threshold":0.125,
      "dynatemp_range":0.5,"dynatemp_exponent":2,"dry_multiplier":0.75,"dry_base":2,"dry_allowed_length":3,
      "dry_penalty_last_n":100,"mirostat":2,"mirostat_tau":4,"mirostat_eta":0.25,"repeat_last_n":64,
      "min_tokens":5,"samplers":["top_k","temperature"])");
  EXPECT_EQ(p.typical_p, 0.5f);
  EXPECT_EQ(p.top_n_sigma, 1.5f);
  EXPECT_EQ(p.xtc_probability, 0.25f);
  EXPECT_EQ(p.xtc_threshold, 0.125f);
  EXPECT_EQ(p.dynatemp_range, 0.5f);
  EXPECT_EQ(p.dynatemp_exponent, 2.0f);
  EXPECT_EQ(p.dry_multiplier, 0.75f);
  EXPECT_EQ(p.dry_base, 2.0f);
  EXPECT_EQ(p.dry_allowed_length, 3);
  EXPECT_EQ(p.dry_penalty_last_n, 100);
  EXPECT_EQ(p.mirostat, 2);
  EXPECT_EQ(p.mirostat_tau, 4.0f);
  EXPECT_EQ(p.mirostat_eta, 0.25f);
  EXPECT_EQ(p.penalty_last_n, 64);
  EXPECT_EQ(p.min_tokens, 5);
  const std::string_view links[] = {"top_k", "temperature"};
  EXPECT_EQ(p.chain, *chain_of(links));
  EXPECT_TRUE(p.validate(263).ok());
}

TEST(ChainFields, edges_of_the_ranges) {
  FakeService fake;
  EXPECT_TRUE(params_of(fake, R"("top_n_sigma":-1)").validate(263).ok()) << "llama.cpp's word for off";
  EXPECT_TRUE(params_of(fake, R"("typical_p":0)").validate(263).ok());
  EXPECT_EQ(params_of(fake, R"("min_tokens":8,"max_tokens":8)").min_tokens, 8);
  EXPECT_FALSE(params_of(fake, R"("samplers":[])").chain.empty()) << "no link, unlike no list";
  EXPECT_TRUE(params_of(fake, R"("samplers":null)").chain.empty());
  EXPECT_EQ(params_of(fake, R"("repeat_last_n":0)").penalty_last_n, 0);
  EXPECT_EQ(params_of(fake, R"("dry_base":1)").dry_base, 1.0f);
}

TEST(ChainFields, a_field_outranks_the_default_of_the_model) {
  FakeService fake;
  fake.service.sampling_defaults.mirostat = 2;
  fake.service.sampling_defaults.penalty_last_n = 64;
  const std::string_view links[] = {"top_k"};
  fake.service.sampling_defaults.chain = *chain_of(links);
  EXPECT_EQ(params_of(fake, "\"n\":1").mirostat, 2);
  EXPECT_EQ(params_of(fake, "\"n\":1").chain, *chain_of(links));
  const SamplingParams p = params_of(fake, R"("mirostat":0,"repeat_last_n":-1,"samplers":["min_p"])");
  EXPECT_EQ(p.mirostat, 0);
  EXPECT_EQ(p.penalty_last_n, -1);
  EXPECT_NE(p.chain, *chain_of(links));
}

TEST(ChainFields, breakers_become_token_sequences) {
  FakeService fake;
  const auto of = [&](const std::string& members) { return params_of(fake, members).dry_breakers; };
  EXPECT_EQ(of("\"n\":1"), nullptr) << "without DRY nobody looks for them";
  EXPECT_EQ(of(R"("dry_multiplier":1,"dry_sequence_breakers":[])"), nullptr);
  const auto usual = of("\"dry_multiplier\":1");
  ASSERT_NE(usual, nullptr);
  for (const char* text : {"\n", ":", "\"", "*"})
    EXPECT_TRUE(usual->is_single(fake.ids(text).at(0))) << text;
  EXPECT_FALSE(usual->is_single(fake.ids("a").at(0)));
  EXPECT_EQ(of("\"dry_multiplier\":0.5"), usual) << "found once";

  const auto longer = of(R"("dry_multiplier":1,"dry_sequence_breakers":["a:b"])");
  const std::vector<int32_t> history = fake.ids("xa:byz");
  EXPECT_EQ(longer->open_tail(history), 2u);
  EXPECT_EQ(longer->open_tail(fake.ids("xa:cyz")), 6u);
  EXPECT_FALSE(longer->is_single(fake.ids(":").at(0)));
}

}  // namespace
}  // namespace invar::api
