// What sampling keeps or reads beside the logits (mirostat's mu, windows of the penalties, DRY's history,
// min_tokens) belongs to its sequence: crowds, forks, preemption and chunks cannot be seen in an answer.
#include <gtest/gtest.h>

#include <string_view>

#include "engine/testing/engine_fixture.h"
#include "sampling/chain.h"

namespace invar {
namespace {

struct Named {
  const char* name;
  SamplingParams params;
};

std::shared_ptr<const DryBreakers> breakers() {
  auto b = std::make_shared<DryBreakers>();
  const int32_t single[] = {7}, pair[] = {11, 12};
  b->add(single);
  b->add(pair);
  return b;
}

std::vector<Named> settings() {
  const std::string_view links[] = {"top_k", "dry", "penalties", "temperature"};
  return {
      {"mirostat 1", {.mirostat = 1, .mirostat_tau = 3.0f, .mirostat_eta = 0.3f}},
      {"mirostat 2", {.mirostat = 2, .mirostat_tau = 3.0f, .mirostat_eta = 0.3f}},
      {"dry",
       {.logit_bias = {{1, 12.0f}, {2, 12.0f}, {3, 12.0f}, {7, 12.0f}},
        .dry_multiplier = 3,
        .dry_allowed_length = 1,
        .dry_breakers = breakers()}},
      {"windows",
       {.presence_penalty = 1.5f,
        .frequency_penalty = 1.0f,
        .repetition_penalty = 1.5f,
        .penalty_last_n = 9}},
      {"xtc and typical", {.typical_p = 0.9f, .xtc_probability = 0.5f, .xtc_threshold = 0.02f}},
      {"dynamic temperature", {.temperature = 0.6f, .top_n_sigma = 1.5f, .dynatemp_range = 0.5f}},
      {"order of its own",
       {.temperature = 0.7f,
        .top_k = 30,
        .repetition_penalty = 1.3f,
        .dry_multiplier = 1,
        .dry_allowed_length = 1,
        .chain = *chain_of(links)}},
      {"min_tokens", {.logit_bias = {{5, 6.0f}}, .min_tokens = 40}},
  };
}

GenerateRequest request_of(const Named& setting, uint64_t seed, int32_t prompt = 150,
                           int32_t max_tokens = 90) {
  GenerateRequest r;
  for (int32_t i = 0; i < prompt; ++i)
    r.prompt.push_back(int32_t(fake_mix(seed * 1000 + uint64_t(i)) % 13));
  r.max_tokens = max_tokens;
  r.sampling = setting.params;
  r.sampling.seed = seed;
  r.sampling.logprobs = 3;
  r.stop_ids = {5};
  return r;
}

Answer answer_of(Stream& stream) {
  Answer answer;
  EXPECT_TRUE(collect(stream, &answer));
  return answer;
}

void expect_same(const Answer& got, const Answer& alone) {
  EXPECT_EQ(got.tokens, alone.tokens);
  EXPECT_EQ(got.scores, alone.scores);
  EXPECT_EQ(got.finish, alone.finish);
}

TEST(SamplingState, is_lost_by_no_preemption_and_shared_with_no_mate) {
  std::vector<GenerateRequest> requests;
  std::vector<Answer> alone;
  for (const Named& setting : settings()) {
    for (const uint64_t seed : {1, 2}) {
      TestEngine t;
      alone.push_back(t.run(request_of(setting, seed)));
    }
  }
  // Four pages each at the end; room for a few of the sixteen.
  const uint64_t page =
      TestEngine().engine->stats().kv_bytes_total / uint64_t(TestEngine().engine->stats().pages_total);
  TestEngine t({.context = 256, .memory_bytes = 13 * page, .prefix_cache_bytes = 0, .max_batch = 16});
  std::vector<std::shared_ptr<Stream>> streams;
  for (const Named& setting : settings())
    for (const uint64_t seed : {1, 2})
      streams.push_back(t.submit(request_of(setting, seed)));
  t.drain();
  EXPECT_GT(t.engine->stats().preemptions, 0);
  EXPECT_GT(t.engine->stats().recomputed_tokens, 0);
  for (size_t i = 0; i < streams.size(); ++i) {
    SCOPED_TRACE(settings()[i / 2].name);
    expect_same(answer_of(*streams[i]), alone[i]);
  }
  EXPECT_EQ(t.engine->stats().pages_used, 0);
}

TEST(SamplingState, of_each_choice_is_its_own) {
  for (const Named& setting : settings()) {
    SCOPED_TRACE(setting.name);
    std::vector<Answer> alone;
    for (uint32_t i = 0; i < 4; ++i) {
      GenerateRequest r = request_of(setting, 3);
      r.sampling.sample_index = i;
      TestEngine t;
      alone.push_back(t.run(std::move(r)));
    }
    TestEngine t({.prefill_chunk = 40, .max_batch = 3});
    const auto streams = t.submit(request_of(setting, 3), 4);
    t.drain();
    for (size_t i = 0; i < 4; ++i)
      expect_same(answer_of(*streams[i]), alone[i]);
  }
}

// The settings do something here at all, or the tests above would prove nothing.
TEST(SamplingState, changes_the_answer) {
  for (const Named& setting : settings()) {
    GenerateRequest plain = request_of({"", {}}, 1), set = request_of(setting, 1);
    plain.sampling.temperature = set.sampling.temperature;
    plain.sampling.logit_bias = set.sampling.logit_bias;
    TestEngine a, b;
    EXPECT_NE(a.run(std::move(plain)).tokens, b.run(std::move(set)).tokens) << setting.name;
  }
}

// A constant mu would keep the same set of tokens in every step.
TEST(SamplingState, mu_moves_with_every_chosen_token) {
  const auto run = [](float eta) {
    TestEngine t;
    GenerateRequest r = request_of({"", {.mirostat = 2, .mirostat_tau = 2.5f, .mirostat_eta = eta}}, 4);
    r.ignore_eos = true;
    return t.run(std::move(r)).tokens;
  };
  EXPECT_NE(run(0.0f), run(1.0f));
}

TEST(SamplingState, stop_ids_wait_for_min_tokens) {
  for (uint64_t seed = 1; seed < 12; ++seed) {
    for (const int32_t least : {0, 1, 30, 89, 90}) {
      GenerateRequest r = request_of({"", {.min_tokens = least}}, seed);
      TestEngine t;
      const Answer answer = t.run(std::move(r));
      EXPECT_GE(int32_t(answer.tokens.size()), least);
      for (const int32_t id : answer.tokens)
        EXPECT_NE(id, 5);
    }
  }
  TestEngine t;
  GenerateRequest r = request_of({"", {.min_tokens = 80}}, 1);
  r.ignore_eos = true;
  r.sampling.logit_bias = {{5, 6.0f}};
  const Answer free = t.run(std::move(r));
  EXPECT_TRUE(std::any_of(free.tokens.begin(), free.tokens.end(), [](int32_t id) {
    return id == 5 || id == 50 || id == 60 || id == 70;
  })) << "ids that do not stop are ordinary tokens";
}

}  // namespace
}  // namespace invar
