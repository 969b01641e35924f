// Several choices of one request: each is, bit for bit, the answer that it would be alone, and the prompt is
// computed once.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/testing/engine_fixture.h"

namespace invar {
namespace {

struct Group {
  GenerateRequest make(int32_t first_index = 0) const {
    GenerateRequest r;
    r.prompt = prompt;
    r.max_tokens = max_tokens;
    r.sampling = sampling;
    r.sampling.sample_index += uint32_t(first_index);
    r.sampling.logprobs = kFakeVocab;  // the whole distribution: equal scores are equal logits
    r.stop_ids = {5};
    r.ignore_eos = ignore_eos;
    if (guarded) r.guard = std::make_unique<MoodyGuard>();
    return r;
  }
  std::vector<int32_t> prompt;
  int32_t max_tokens = 20;
  SamplingParams sampling;
  bool guarded = false, ignore_eos = false;
  int32_t choices = 3;
};

Group group_of(int32_t prompt, int32_t max_tokens, int32_t choices) {
  Group g;
  for (int32_t i = 0; i < prompt; ++i)
    g.prompt.push_back(int32_t(fake_mix(uint64_t(i)) % kFakeVocab));
  g.max_tokens = max_tokens;
  g.choices = choices;
  g.sampling.seed = 42;
  return g;
}

std::vector<Answer> answers_alone(const Group& group) {
  TestEngine t;
  std::vector<Answer> answers;
  for (int32_t i = 0; i < group.choices; ++i)
    answers.push_back(t.run(group.make(i)));
  return answers;
}

// What must be equal; logits are observed by the first choice only.
void expect_same(const Answer& got, const Answer& alone) {
  EXPECT_EQ(got.tokens, alone.tokens);
  EXPECT_EQ(got.scores, alone.scores);
  EXPECT_EQ(got.finish, alone.finish);
}

void expect_ends_as(const std::vector<std::shared_ptr<Stream>>& streams, const std::vector<Answer>& alone) {
  for (size_t i = 0; i < streams.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "choice " << i);
    Answer answer;
    EXPECT_TRUE(collect(*streams[i], &answer));
    expect_same(answer, alone[i]);
  }
}

TEST(Forks, choices_differ_and_equal_requests_with_their_sample_index) {
  for (const bool guarded : {false, true}) {
    Group g = group_of(70, 40, 5);
    g.guarded = guarded;
    g.sampling.sample_index = 3;
    g.sampling.repetition_penalty = 1.2f;
    const std::vector<Answer> alone = answers_alone(g);
    EXPECT_NE(alone[0].tokens, alone[1].tokens);
    TestEngine t;
    const auto streams = t.submit(g.make(), g.choices);
    t.drain();
    expect_ends_as(streams, alone);
    EXPECT_EQ(t.engine->stats().pages_used, 0);
  }
}

TEST(Forks, prompt_is_computed_once_and_its_full_pages_are_shared) {
  TestEngine t;
  const Group g = group_of(10 * kPageTokens + 10, 20, 8);
  const auto streams = t.submit(g.make(), g.choices);
  EXPECT_EQ(t.engine->stats().live, 8);
  for (int i = 0; i < 4; ++i)
    t.engine->step();
  EXPECT_EQ(t.engine->stats().running, 8);
  EXPECT_EQ(t.engine->stats().pages_used, 10 + 8) << "ten for all, and a tail for each";
  t.drain();
  EXPECT_EQ(t.engine->stats().prompt_tokens, 10 * kPageTokens + 10);
  EXPECT_EQ(t.engine->stats().recomputed_tokens, 0);
  expect_ends_as(streams, answers_alone(g));
}

TEST(Forks, first_tokens_of_all_choices_come_with_the_step_that_ends_the_prompt) {
  TestEngine t({.max_batch = 2});
  const Group g = group_of(30, 10, 5);
  const auto streams = t.submit(g.make(), g.choices);
  t.engine->step();
  for (const auto& stream : streams)
    EXPECT_TRUE(stream->try_next().has_value());
}

TEST(Forks, are_served_before_requests_that_came_later) {
  TestEngine t({.max_batch = 1});
  const auto streams = t.submit(group_of(30, 10, 3).make(), 3);
  auto later = t.submit(group_of(5, 10, 1).make());
  while (!later->try_next().has_value())
    ASSERT_TRUE(t.engine->step());
  for (const auto& stream : streams) {
    Answer answer;
    EXPECT_TRUE(collect(*stream, &answer));
  }
}

TEST(Forks, fewer_places_than_choices) {
  for (const int32_t max_batch : {1, 2, 3}) {
    TestEngine t({.max_batch = max_batch});
    const Group g = group_of(100, 30, 7);
    const auto streams = t.submit(g.make(), g.choices);
    t.drain();
    expect_ends_as(streams, answers_alone(g));
    EXPECT_EQ(t.engine->stats().recomputed_tokens, 0) << "those that wait keep the prompt";
    for (const StepRecord& step : t.trace)
      EXPECT_LE(step.decode_rows, max_batch);
  }
}

TEST(Forks, any_choice_can_be_cancelled_before_the_prompt_is_done) {
  const Group g = group_of(200, 20, 4);
  const std::vector<Answer> alone = answers_alone(g);
  for (size_t victim = 0; victim < 4; ++victim) {
    for (int32_t steps = 0; steps < 3; ++steps) {
      TestEngine t({.prefill_chunk = 64});
      auto streams = t.submit(g.make(), g.choices);
      for (int32_t i = 0; i < steps; ++i)
        t.engine->step();
      streams[victim]->cancel();
      t.engine->step();
      Answer cancelled;
      EXPECT_TRUE(collect(*streams[victim], &cancelled));
      EXPECT_EQ(cancelled.finish, FinishReason::kCancelled);
      t.drain();
      for (size_t i = 0; i < 4; ++i) {
        if (i == victim) continue;
        Answer answer;
        EXPECT_TRUE(collect(*streams[i], &answer));
        expect_same(answer, alone[i]);
      }
      EXPECT_EQ(t.engine->stats().prompt_tokens, 200);
      EXPECT_EQ(t.engine->stats().recomputed_tokens, 0) << "what the first computed is kept";
      EXPECT_EQ(t.engine->stats().pages_used, 0);
      EXPECT_EQ(t.engine->stats().live, 0);
    }
  }
}

TEST(Forks, all_choices_dropped_before_the_prompt_is_done_free_everything) {
  TestEngine t({.prefill_chunk = 64});
  auto streams = t.submit(group_of(200, 20, 4).make(), 4);
  t.engine->step();
  EXPECT_GT(t.engine->stats().pages_used, 0);
  streams.clear();
  t.engine->step();
  EXPECT_EQ(t.engine->stats().pages_used, 0);
  EXPECT_EQ(t.engine->stats().live, 0);
  EXPECT_EQ(t.engine->stats().requests.cancelled, 4);
  EXPECT_FALSE(t.engine->step());
}

TEST(Forks, fork_waits_until_there_is_a_page_for_its_tail) {
  // Four pages: three of the prompt, and one more. A third tail exists only when a choice is gone.
  TestEngine t({.context = 256, .memory_bytes = 4 * 4096});
  const Group g = group_of(2 * kPageTokens + 10, 20, 3);
  const auto streams = t.submit(g.make(), g.choices);
  t.drain();
  expect_ends_as(streams, answers_alone(g));
  int64_t preempted = 0;
  for (const StepRecord& step : t.trace)
    preempted += step.preempted;
  EXPECT_EQ(preempted, 0);
  EXPECT_EQ(t.engine->stats().recomputed_tokens, 0);
}

TEST(Forks, forks_that_lose_their_pages_are_computed_again_alone) {
  // The choices grow to four pages each, and there are six.
  TestEngine t({.context = 256, .memory_bytes = 6 * 4096});
  Group g = group_of(20, 200, 3);
  g.ignore_eos = true;
  const std::vector<Answer> alone = answers_alone(g);
  const auto streams = t.submit(g.make(), g.choices);
  t.drain();
  expect_ends_as(streams, alone);
  EXPECT_GT(t.engine->stats().preemptions, 0);
  EXPECT_GT(t.engine->stats().recomputed_tokens, 0);
  EXPECT_EQ(t.engine->stats().prompt_tokens, 20);
}

TEST(Forks, forks_that_wait_for_a_place_give_their_pages_to_one_that_runs) {
  // One sequence of the context fills the pool, the tail that the waiting ones keep included.
  TestEngine t({.context = 400, .memory_bytes = 7 * 4096, .max_batch = 1});
  Group g = group_of(70, 330, 3);
  g.ignore_eos = true;
  const auto streams = t.submit(g.make(), g.choices);
  t.drain();
  expect_ends_as(streams, answers_alone(g));
  EXPECT_GE(t.engine->stats().preemptions, 2);
  EXPECT_EQ(t.engine->stats().prompt_tokens, 70) << "computed again, not for the first time";
}

TEST(Forks, fault_in_the_prompt_ends_every_choice_as_it_would_alone) {
  TestEngine t({.prefill_chunk = 16});
  t.script->faults = [](int32_t, int32_t position) { return position == 40; };
  const auto streams = t.submit(group_of(60, 10, 3).make(), 3);
  t.drain();
  for (const auto& stream : streams) {
    Answer answer;
    EXPECT_TRUE(collect(*stream, &answer));
    EXPECT_EQ(answer.finish, FinishReason::kError);
    EXPECT_NE(answer.error.message().find("position 40"), std::string::npos);
  }
  EXPECT_EQ(t.engine->stats().pages_used, 0);
}

TEST(Forks, failure_of_the_first_choice_is_its_own) {
  const Group g = group_of(30, 10, 3);
  const std::vector<Answer> alone = answers_alone(g);
  for (const int32_t at : {10, 29}) {
    TestEngine t({.prefill_chunk = 16});
    GenerateRequest r = g.make();
    r.all_prompt_logits = true;
    r.on_logits = [at](int32_t position, std::span<const float>) {
      if (position == at) throw std::runtime_error("observer broke");
    };
    const auto streams = t.submit(std::move(r), g.choices);
    t.drain();
    Answer first;
    EXPECT_TRUE(collect(*streams[0], &first));
    EXPECT_EQ(first.finish, FinishReason::kError);
    for (size_t i = 1; i < streams.size(); ++i) {
      Answer answer;
      EXPECT_TRUE(collect(*streams[i], &answer));
      expect_same(answer, alone[i]);
    }
    EXPECT_EQ(t.engine->stats().prompt_tokens, 30);
  }
}

TEST(Forks, choices_without_an_answer_end_with_the_prompt) {
  TestEngine t;
  const auto streams = t.submit(group_of(30, 0, 3).make(), 3);
  t.engine->step();
  for (const auto& stream : streams) {
    Answer answer;
    EXPECT_TRUE(collect(*stream, &answer));
    EXPECT_EQ(answer.finish, FinishReason::kLength);
    EXPECT_TRUE(answer.tokens.empty());
  }
  EXPECT_EQ(t.engine->stats().live, 0);
}

TEST(Forks, number_of_choices_has_bounds) {
  TestEngine t;
  for (const int32_t n : {0, -1, kMaxChoices + 1}) {
    const auto streams = t.engine->submit(group_of(3, 3, 1).make(), n);
    ASSERT_FALSE(streams.ok());
    EXPECT_EQ(streams.status().message(), "n: " + std::to_string(n) + " is not between 1 and 128");
  }
}

TEST(Forks, destruction_ends_choices_that_wait_for_their_prompt) {
  std::vector<std::shared_ptr<Stream>> waiting, unseen;
  {
    TestEngine t({.prefill_chunk = 16});
    waiting = t.submit(group_of(60, 10, 3).make(), 3);
    t.engine->step();
    unseen = t.submit(group_of(60, 10, 3).make(), 3);
  }
  for (const auto& streams : {waiting, unseen})
    for (const auto& stream : streams) {
      Answer answer;
      EXPECT_TRUE(collect(*stream, &answer));
      EXPECT_EQ(answer.finish, FinishReason::kCancelled);
    }
}

// ---- Over random schedules.

struct Seen {
  int64_t preempted = 0, cancelled = 0, ended_early = 0;
};

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int32_t between(int32_t low, int32_t high) { return low + int32_t(engine_() % uint32_t(high - low + 1)); }
  bool one_in(int32_t n) { return between(1, n) == 1; }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[size_t(between(0, int32_t(values.size()) - 1))];
  }

 private:
  std::mt19937 engine_;
};

Group random_group(Random& random) {
  Group g = group_of(random.pick({random.between(1, 10), random.between(60, 70), random.between(100, 200)}),
                     random.pick({0, 1, random.between(2, 20), random.between(60, 150), 150}),
                     random.between(1, 6));
  g.prompt[0] = random.between(0, kFakeVocab - 1);
  g.sampling.temperature = random.pick({0.0f, 0.7f, 1.0f});
  g.sampling.seed = uint64_t(random.between(0, 1 << 20));
  g.sampling.sample_index = uint32_t(random.between(0, 2));
  g.sampling.frequency_penalty = random.pick({0.0f, 0.5f});
  g.guarded = random.one_in(3);
  g.ignore_eos = random.one_in(2);
  if (random.one_in(3)) {  // admitted with a page or two, wants more than there are
    g.prompt.resize(size_t(std::min(int32_t(g.prompt.size()), 70)));
    g.max_tokens = 220;
    g.ignore_eos = true;
    g.guarded = false;
  }
  return g;
}

void expect_choices_equal_alone(uint32_t seed, int32_t window, Seen* seen) {
  Random random(seed);
  EngineOptions options;
  options.max_step_tokens = random.pick({1, 7, 64, 512});
  options.prefill_chunk = random.pick({0, 1, 5, 64});
  options.max_logit_rows = random.pick({1, 4, 64});
  options.max_batch = std::min({random.pick({1, 2, 3, 16}), options.max_step_tokens, options.max_logit_rows});
  options.memory_bytes = uint64_t(random.pick({7, 9, 14, 200})) * (window > 0 ? 2 : 1) * 4096;
  TestEngine t(options, window, 400), reference({}, window, 400);

  struct Running {
    std::vector<std::shared_ptr<Stream>> streams;
    std::vector<Answer> alone, got;
    std::vector<bool> dropped;
  };
  std::vector<Running> groups;
  const int32_t count = random.between(2, 6);
  for (int32_t step = 0; step < 200000; ++step) {
    if (int32_t(groups.size()) < count && random.one_in(4)) {
      const Group g = random_group(random);
      Running r;
      for (int32_t i = 0; i < g.choices; ++i)
        r.alone.push_back(reference.run(g.make(i)));
      r.streams = t.submit(g.make(), g.choices);
      r.got.resize(r.streams.size());
      r.dropped.resize(r.streams.size());
      groups.push_back(std::move(r));
    }
    if (!groups.empty() && random.one_in(12)) {
      Running& r = groups[size_t(random.between(0, int32_t(groups.size()) - 1))];
      const size_t i = random.one_in(2) ? 0 : size_t(random.between(0, int32_t(r.streams.size()) - 1));
      if (r.streams[i] != nullptr && !collect(*r.streams[i], &r.got[i])) {
        ++seen->cancelled;
        r.dropped[i] = true;
        if (random.one_in(2)) {
          r.streams[i]->cancel();
        } else {
          r.streams[i] = nullptr;
        }
      }
    }
    if (!t.engine->step() && int32_t(groups.size()) == count) break;
  }
  for (Running& r : groups) {
    for (size_t i = 0; i < r.got.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "choice " << i << " of " << r.got.size());
      Answer& got = r.got[i];
      if (r.streams[i] != nullptr) {
        EXPECT_TRUE(collect(*r.streams[i], &got)) << "did not end";
      }
      if (!r.dropped[i]) {
        expect_same(got, r.alone[i]);
        continue;
      }
      ++seen->ended_early;
      ASSERT_LE(got.tokens.size(), r.alone[i].tokens.size());
      EXPECT_TRUE(std::equal(got.scores.begin(), got.scores.end(), r.alone[i].scores.begin()));
    }
  }
  const EngineStats stats = t.engine->stats();
  EXPECT_EQ(stats.pages_used, 0);
  EXPECT_EQ(stats.live, 0);
  seen->preempted += stats.preemptions;
}

class ForkSchedule : public testing::TestWithParam<int32_t> {};

TEST_P(ForkSchedule, choices_do_not_depend_on_siblings_crowd_or_pages) {
  Seen seen;
  for (uint32_t seed = 1; seed <= 80; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    expect_choices_equal_alone(seed, GetParam(), &seen);
    if (HasFailure()) return;
  }
  EXPECT_GT(seen.preempted, 20);
  EXPECT_GT(seen.cancelled, 60);
  EXPECT_EQ(seen.cancelled, seen.ended_early);
}

INSTANTIATE_TEST_SUITE_P(Windows, ForkSchedule, testing::Values(0, 50), [](const auto& info) {
  return info.param == 0 ? std::string("full") : "full_and_window_" + std::to_string(info.param);
});

}  // namespace
}  // namespace invar
