#include "cli/sampling_flags.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sampling/numbers.h"

namespace invar {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

Result<GenerateRequest> request_of(std::vector<std::string> args) {
  Flags flags("run", "");
  SamplingFlags sampling;
  sampling.declare(flags);
  const auto parsed = flags.parse(args);
  if (!parsed.ok()) return parsed.status();
  RETURN_IF_ERROR(sampling.finish());
  GenerateRequest request;
  sampling.apply(request);
  return request;
}

TEST(SamplingFlags, every_flag_reaches_its_field) {
  const auto r = request_of({"--temp",
                             "0.5",
                             "--top-k",
                             "40",
                             "--top-p",
                             "0.9",
                             "--min-p",
                             "0.05",
                             "--presence-penalty",
                             "1",
                             "--frequency-penalty",
                             "-2",
                             "--repeat-penalty",
                             "1.25",
                             "--logit-bias",
                             "5:-1.5",
                             "--logit-bias",
                             "7:2",
                             "--seed",
                             "9",
                             "--logprobs",
                             "3",
                             "--max-tokens",
                             "17",
                             "--ignore-eos",
                             "--stop-id",
                             "11",
                             "--stop-id",
                             "12"});
  ASSERT_TRUE(r.ok()) << r.status().message();
  const SamplingParams& p = r->sampling;
  EXPECT_EQ(p.temperature, 0.5f);
  EXPECT_EQ(p.top_k, 40);
  EXPECT_EQ(p.top_p, 0.9f);
  EXPECT_EQ(p.min_p, 0.05f);
  EXPECT_EQ(p.presence_penalty, 1);
  EXPECT_EQ(p.frequency_penalty, -2);
  EXPECT_EQ(p.repetition_penalty, 1.25f);
  EXPECT_THAT(p.logit_bias, ElementsAre(Pair(5, -1.5f), Pair(7, 2.0f)));
  EXPECT_EQ(p.seed, 9u);
  EXPECT_EQ(p.logprobs, 3);
  EXPECT_EQ(r->max_tokens, 17);
  EXPECT_TRUE(r->ignore_eos);
  EXPECT_THAT(r->stop_ids, ElementsAre(11, 12));
}

TEST(SamplingFlags, the_temperature_has_the_name_that_requests_give_it_too) {
  EXPECT_EQ(request_of({"--temperature", "0.25"})->sampling.temperature, 0.25f);
  EXPECT_THAT(request_of({"--temperature", "hot"}).status().message(), HasSubstr("--temp hot"));
}

TEST(SamplingFlags, the_links_of_the_chain_have_flags) {
  const auto r = request_of({"--typical",
                             "0.5",
                             "--top-nsigma",
                             "1.5",
                             "--xtc-probability",
                             "0.25",
                             "--xtc-threshold",
                             "0.2",
                             "--dynatemp-range",
                             "0.5",
                             "--dynatemp-exp",
                             "2",
                             "--dry-multiplier",
                             "0.8",
                             "--dry-base",
                             "2",
                             "--dry-allowed-length",
                             "3",
                             "--dry-penalty-last-n",
                             "9",
                             "--mirostat",
                             "2",
                             "--mirostat-ent",
                             "4",
                             "--mirostat-lr",
                             "0.2",
                             "--repeat-last-n",
                             "64",
                             "--min-tokens",
                             "3",
                             "--samplers",
                             "top_k;dry"});
  ASSERT_TRUE(r.ok()) << r.status().message();
  const SamplingParams& p = r->sampling;
  EXPECT_EQ(p.typical_p, 0.5f);
  EXPECT_EQ(p.top_n_sigma, 1.5f);
  EXPECT_EQ(p.xtc_probability, 0.25f);
  EXPECT_EQ(p.xtc_threshold, 0.2f);
  EXPECT_EQ(p.dynatemp_range, 0.5f);
  EXPECT_EQ(p.dynatemp_exponent, 2.0f);
  EXPECT_EQ(p.dry_multiplier, 0.8f);
  EXPECT_EQ(p.dry_base, 2.0f);
  EXPECT_EQ(p.dry_allowed_length, 3);
  EXPECT_EQ(p.dry_penalty_last_n, 9);
  EXPECT_EQ(p.mirostat, 2);
  EXPECT_EQ(p.mirostat_tau, 4.0f);
  EXPECT_EQ(p.mirostat_eta, 0.2f);
  EXPECT_EQ(p.penalty_last_n, 64);
  EXPECT_EQ(p.min_tokens, 3);
  EXPECT_FALSE(p.chain.empty());
  EXPECT_TRUE(p.validate(1000).ok());
}

TEST(SamplingFlags, contradictions_name_the_flag) {
  EXPECT_THAT(request_of({"--samplers", "top_k;x"}).status().message(),
              HasSubstr("--samplers: \"x\" is unknown"));
  EXPECT_THAT(request_of({"--min-tokens", "9", "-n", "8"}).status().message(), HasSubstr("--min-tokens 9"));
  EXPECT_THAT(request_of({"--temp", "0", "--dynatemp-range", "1"}).status().message(),
              HasSubstr("--dynatemp-range"));
}

TEST(SamplingFlags, a_flag_outranks_the_model_even_with_the_usual_value) {
  Flags flags("run", "");
  SamplingFlags sampling;
  sampling.declare(flags);
  ASSERT_TRUE(flags.parse(std::vector<std::string>{"--temp", "0.7", "--top-k", "0"}).ok());
  ASSERT_TRUE(sampling.finish().ok());
  sampling.take_defaults({.temperature = 0.3f, .top_k = 20, .top_p = 0.8f, .mirostat = 2});
  GenerateRequest r;
  sampling.apply(r);
  EXPECT_EQ(r.sampling.temperature, 0.7f);
  EXPECT_EQ(r.sampling.top_k, 0);
  EXPECT_EQ(r.sampling.top_p, 0.8f);
  EXPECT_EQ(r.sampling.mirostat, 2);
  EXPECT_THAT(sampling.given_members(), ElementsAre("temperature", "top_k"));
}

TEST(SamplingFlags, without_a_seed_two_runs_differ) {
  EXPECT_NE(request_of({})->sampling.seed, request_of({})->sampling.seed);
}

TEST(SamplingFlags, malformed_values_name_the_flag) {
  EXPECT_THAT(request_of({"--logit-bias", "5"}).status().message(), HasSubstr("--logit-bias 5"));
  EXPECT_THAT(request_of({"--logit-bias", "x:1"}).status().message(), HasSubstr("--logit-bias x"));
  EXPECT_THAT(request_of({"--stop-id", "-3"}).status().message(), HasSubstr("--stop-id -3"));
  EXPECT_THAT(request_of({"--top-p", "1.5"}).status().message(), HasSubstr("--top-p 1.5"));
}

std::string error_of(std::vector<std::string> args) {
  const auto r = request_of(std::move(args));
  return r.ok() ? "no error" : r.status().message();
}

TEST(SamplingFlags, values_out_of_range_name_the_flag_and_the_range) {
  for (const SamplingNumber& n : sampling_numbers()) {
    const std::string names = n.flags, flag = names.substr(0, names.find(','));
    for (const double bad : {n.min - 1, n.max + 1}) {
      const std::string error = error_of({flag, fmt::format("{}", bad)});
      EXPECT_THAT(error, HasSubstr(flag));
      EXPECT_THAT(error, HasSubstr(fmt::format("{}", n.min)));
      EXPECT_THAT(error, HasSubstr(fmt::format("{}", n.max)));
    }
  }
}

TEST(SamplingFlags, a_temperature_too_small_to_divide_by_is_0_as_in_requests) {
  EXPECT_EQ(request_of({"--temp", "1e-9"})->sampling.temperature, 0.0f);
  EXPECT_THAT(error_of({"--temp", "1e-9", "--dynatemp-range", "1"}), HasSubstr("--dynatemp-range"));
}

// What finish() lets through must also suit the sampler, whose messages name fields.
TEST(SamplingFlags, the_least_and_greatest_values_pass_the_sampler) {
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"--temp", "0"},
                                             {"--temp", "1e-6"},
                                             {"--temp", "1e-60"},
                                             {"--temp", "2"},
                                             {"--top-p", "0"},
                                             {"--top-k", "-1"},
                                             {"--top-p", "1"},
                                             {"--min-p", "0"},
                                             {"--min-p", "1"},
                                             {"--repeat-penalty", "0.01"},
                                             {"--presence-penalty", "-2"},
                                             {"--logit-bias", "0:-3e38"},
                                             {"--logprobs", "0"}}) {
    const auto r = request_of(args);
    ASSERT_TRUE(r.ok()) << r.status().message();
    const Status s = r->sampling.validate(2000);
    EXPECT_TRUE(s.ok()) << s.message();
  }
}

TEST(SamplingFlags, half_a_bias_is_refused_with_the_form) {
  for (const char* text : {":", "5:", ":2", "5", "", "x:2", "5:y", "-1:2", "4294967296:2"})
    EXPECT_THAT(error_of({"--logit-bias", text}), HasSubstr("must be ID:X")) << text;
  EXPECT_THAT(error_of({"--logit-bias", ":"}), HasSubstr("--logit-bias :: "));
}

TEST(SamplingFlags, ids_beyond_the_vocabulary_name_the_flag) {
  const auto check = [](std::vector<std::string> args, int32_t vocab) {
    Flags flags("run", "");
    SamplingFlags sampling;
    sampling.declare(flags);
    EXPECT_TRUE(flags.parse(args).ok());
    EXPECT_TRUE(sampling.finish().ok());
    return sampling.check_vocabulary(vocab).message();
  };
  EXPECT_EQ(check({"--logit-bias", "9:1"}, 9), "--logit-bias 9: the model has the token ids 0 to 8");
  EXPECT_EQ(check({"--stop-id", "9"}, 9), "--stop-id 9: the model has the token ids 0 to 8");
  EXPECT_EQ(check({"--logprobs", "10"}, 9), "--logprobs 10: the model has 9 tokens");
  EXPECT_EQ(check({"--logprobs", "9", "--stop-id", "8", "--logit-bias", "8:1"}, 9), "");
}

}  // namespace
}  // namespace invar
