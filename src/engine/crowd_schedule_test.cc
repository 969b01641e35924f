// The contract of the engine over random schedules: an answer does not depend on anything but its request.
#include <gtest/gtest.h>

#include <random>

#include "engine/testing/engine_fixture.h"

namespace invar {
namespace {

struct Case {
  GenerateRequest make() const {
    GenerateRequest r;
    r.prompt = prompt;
    r.max_tokens = max_tokens;
    r.sampling = sampling;
    r.stop_ids = {5, 6};
    r.ignore_eos = ignore_eos;
    r.all_prompt_logits = all_prompt_logits;
    return r;
  }
  std::vector<int32_t> prompt;
  int32_t max_tokens;
  SamplingParams sampling;
  bool ignore_eos, all_prompt_logits;
};

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int32_t between(int32_t low, int32_t high) { return low + int32_t(engine_() % uint32_t(high - low + 1)); }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[size_t(between(0, int32_t(values.size()) - 1))];
  }

 private:
  std::mt19937 engine_;
};

Case random_case(Random& random) {
  Case c;
  const int32_t length =
      random.pick({random.between(1, 10), random.between(60, 70), random.between(100, 300)});
  for (int32_t i = 0; i < length; ++i)
    c.prompt.push_back(random.between(0, kFakeVocab - 1));
  c.max_tokens = random.pick({0, 1, random.between(2, 20), random.between(20, 90), random.between(70, 90)});
  c.sampling.temperature = random.pick({0.0f, 0.7f, 1.0f});
  c.sampling.seed = uint64_t(random.between(0, 1 << 20));
  c.sampling.top_k = random.pick({0, 0, 10});
  c.sampling.top_p = random.pick({1.0f, 0.9f});
  c.sampling.repetition_penalty = random.pick({1.0f, 1.3f});
  c.sampling.frequency_penalty = random.pick({0.0f, 0.5f});
  c.ignore_eos = random.between(0, 1) == 0;
  c.all_prompt_logits = random.between(0, 3) == 0;
  if (random.between(0, 2) == 0) {  // admitted with one page, wants four: what preemption is for
    c.prompt.resize(size_t(std::min(length, 20)));
    c.max_tokens = 200;
    c.ignore_eos = true;
  }
  return c;
}

struct Seen {
  int64_t mixed = 0, cut = 0, preempted = 0;
};

// All cases at once, arriving between steps, some neighbours cancelled on the way.
void expect_crowd_equals_alone(uint32_t seed, int32_t window, Seen* seen) {
  Random random(seed);
  std::vector<Case> cases;
  std::vector<Answer> alone;
  const int32_t count = random.between(4, 14);
  {
    TestEngine reference({}, window, 512);
    for (int32_t i = 0; i < count; ++i) {
      cases.push_back(random_case(random));
      alone.push_back(reference.run(cases.back().make()));
    }
  }

  EngineOptions options;
  options.max_step_tokens = random.pick({1, 7, 64, 512});
  options.prefill_chunk = random.pick({0, 1, 5, 64});
  options.max_logit_rows = random.pick({1, 4, 64});
  // A larger batch would raise the two budgets; the tight ones are what is wanted here.
  options.max_batch =
      std::min({random.pick({1, 3, 16, 16}), options.max_step_tokens, options.max_logit_rows});
  // From a pool that one long sequence fills to plenty. A page of either group has 4096 bytes.
  options.memory_bytes = uint64_t(random.pick({7, 9, 14, 200})) * (window > 0 ? 2 : 1) * 4096;
  TestEngine t(options, window, 400);
  ASSERT_EQ(t.engine->context(), 400);
  std::vector<Answer> crowd(cases.size());
  std::vector<std::shared_ptr<Stream>> streams(cases.size());
  std::vector<std::shared_ptr<Stream>> neighbours;
  size_t next = 0;
  for (int32_t step = 0; step < 200000; ++step) {
    while (next < cases.size() && random.between(0, 2) == 0) {
      GenerateRequest r = cases[next].make();
      r.on_logits = hash_logits_into(&crowd[next].logits);
      streams[next++] = t.submit(std::move(r));
      if (random.between(0, 2) == 0) {
        GenerateRequest neighbour = random_case(random).make();
        neighbour.all_prompt_logits = false;
        neighbours.push_back(t.submit(std::move(neighbour)));
      }
    }
    if (!neighbours.empty() && random.between(0, 9) == 0) {
      if (random.between(0, 1) == 0) neighbours.back()->cancel();
      neighbours.pop_back();  // dropped, which cancels too
    }
    if (!t.engine->step() && next == cases.size()) break;
    const EngineStats stats = t.engine->stats();
    ASSERT_LE(stats.pages_used, stats.pages_total);
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    ASSERT_TRUE(collect(*streams[i], &crowd[i])) << "request " << i << " did not end";
    EXPECT_EQ(crowd[i].tokens, alone[i].tokens) << i;
    EXPECT_EQ(crowd[i].logits, alone[i].logits) << i;
    EXPECT_EQ(crowd[i].finish, alone[i].finish) << i;
  }
  EXPECT_EQ(t.engine->stats().pages_used, 0);
  for (const StepRecord& step : t.trace) {
    seen->mixed += step.mixed();
    seen->cut += step.cut_prompts > 0;
    seen->preempted += step.preempted;
  }
}

class CrowdSchedule : public testing::TestWithParam<int32_t> {};

TEST_P(CrowdSchedule, answers_do_not_depend_on_the_crowd) {
  Seen seen;
  for (uint32_t seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    expect_crowd_equals_alone(seed, GetParam(), &seen);
    if (HasFailure()) return;
  }
  EXPECT_GT(seen.mixed, 100);
  EXPECT_GT(seen.cut, 100);
  EXPECT_GT(seen.preempted, 20);
  RecordProperty("preempted", int(seen.preempted));
}

INSTANTIATE_TEST_SUITE_P(Windows, CrowdSchedule, testing::Values(0, 50), [](const auto& info) {
  return info.param == 0 ? std::string("full") : "full_and_window_" + std::to_string(info.param);
});

}  // namespace
}  // namespace invar
