// Whatever happens to one request in mid-flight: the others' answers are what they would be alone, and after
// every step the pool holds exactly the pages that the live ones need.
#include <gtest/gtest.h>

#include <stdexcept>

#include "engine/testing/engine_fixture.h"
#include "kv/page_pool.h"

namespace invar {
namespace {

constexpr int32_t kRequests = 5, kVictim = 2, kHarmAt = 30;  // generated tokens

enum class Harm {
  kNone,
  kCancel,
  kDrop,
  kFault,
  kGuardThrows,
  kMaskThrows,
  kMaskEmpty,
  kObserverThrows,
  kNotifyThrows
};

class ClumsyGuard : public Guard {
 public:
  explicit ClumsyGuard(Harm harm) : harm_(harm) {}
  bool mask(std::span<uint32_t> words) override {
    if (taken_ < kHarmAt) return false;
    if (harm_ == Harm::kMaskThrows) throw std::runtime_error("clumsy");
    std::fill(words.begin(), words.end(), 0);
    return harm_ == Harm::kMaskEmpty;
  }
  Verdict accept(int32_t) override {
    if (++taken_ > kHarmAt && harm_ == Harm::kGuardThrows) throw std::runtime_error("clumsy");
    return {};
  }
  std::unique_ptr<Guard> clone() const override { return std::make_unique<ClumsyGuard>(*this); }

 private:
  Harm harm_;
  int32_t taken_ = 0;
};

GenerateRequest request_of(int32_t index) {
  GenerateRequest r;
  for (int32_t i = 0; i < 40 + 50 * index; ++i)
    r.prompt.push_back(int32_t(fake_mix(uint64_t(i + 1000 * index)) % kFakeVocab));
  r.max_tokens = 60 + 10 * index;
  r.sampling.seed = uint64_t(index);
  return r;
}

class Containment : public testing::TestWithParam<Harm> {};

TEST_P(Containment, others_go_on_and_pages_are_those_of_the_living) {
  const Harm harm = GetParam();
  std::vector<Answer> alone;
  for (int32_t i = 0; i < kRequests; ++i) {
    TestEngine lone;
    alone.push_back(lone.run(request_of(i)));
  }

  TestEngine t({.prefix_cache_bytes = 0});
  std::vector<Answer> answers(kRequests);
  std::vector<std::shared_ptr<Stream>> streams;
  for (int32_t i = 0; i < kRequests; ++i) {
    GenerateRequest r = request_of(i);
    r.on_logits = hash_logits_into(&answers[size_t(i)].logits);
    if (i == kVictim) {
      r.guard = std::make_unique<ClumsyGuard>(harm);
      const auto due = [&answers] { return answers[kVictim].logits.size() > kHarmAt; };
      if (harm == Harm::kObserverThrows)
        r.on_logits = [due, hash = r.on_logits](int32_t position, std::span<const float> logits) {
          hash(position, logits);
          if (due()) throw std::runtime_error("clumsy");
        };
      if (harm == Harm::kNotifyThrows)
        r.notify = [due] {
          if (due()) throw std::runtime_error("clumsy");
        };
    }
    streams.push_back(t.submit(std::move(r)));
  }
  const int32_t victim_prompt = int32_t(request_of(kVictim).prompt.size());
  if (harm == Harm::kFault) {
    const int32_t token = alone[kVictim].tokens[kHarmAt];
    t.script->faults = [=](int32_t at_token, int32_t position) {
      return position == victim_prompt + kHarmAt && at_token == token;
    };
  }
  bool harmed = false;
  while (t.engine->step()) {
    if (!harmed && answers[kVictim].logits.size() > kHarmAt) {
      harmed = true;
      if (harm == Harm::kCancel) streams[kVictim]->cancel();
      if (harm == Harm::kDrop) streams[kVictim].reset();
      if (harm == Harm::kCancel || harm == Harm::kDrop || harm == Harm::kNotifyThrows)
        continue;  // within a step
    }
    int32_t pages = 0, prompts = 0;
    for (int32_t i = 0; i < kRequests; ++i) {
      if (streams[size_t(i)] == nullptr) continue;
      Answer& answer = answers[size_t(i)];
      if (collect(*streams[size_t(i)], &answer)) continue;
      prompts += answer.tokens.empty();
      const int32_t committed = int32_t(request_of(i).prompt.size() + answer.tokens.size()) - 1;
      pages += (committed + kPageTokens - 1) / kPageTokens;
    }
    if (prompts > 0) continue;  // how far they are is not seen from here
    ASSERT_EQ(t.engine->stats().pages_used, pages) << "step " << t.engine->stats().steps;
  }
  EXPECT_EQ(t.engine->stats().pages_used, 0);
  EXPECT_EQ(t.engine->stats().live, 0);
  EXPECT_TRUE(harmed);
  for (int32_t i = 0; i < kRequests; ++i) {
    if (i != kVictim || harm == Harm::kNone) {
      EXPECT_EQ(answers[size_t(i)], alone[size_t(i)]) << i;
    } else if (streams[kVictim] != nullptr) {
      const bool cancelled = harm == Harm::kCancel || harm == Harm::kNotifyThrows;
      EXPECT_EQ(answers[kVictim].finish, cancelled ? FinishReason::kCancelled : FinishReason::kError);
      ASSERT_LE(answers[kVictim].tokens.size(), size_t(kHarmAt) + 2);
      EXPECT_TRUE(std::equal(answers[kVictim].tokens.begin(), answers[kVictim].tokens.end(),
                             alone[kVictim].tokens.begin()));
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Harms, Containment,
                         testing::Values(Harm::kNone, Harm::kCancel, Harm::kDrop, Harm::kFault,
                                         Harm::kGuardThrows, Harm::kMaskThrows, Harm::kMaskEmpty,
                                         Harm::kObserverThrows, Harm::kNotifyThrows));

// Those of the step cannot go on, since what they would have seen is unknown; all others do.
TEST(ContainmentOfSteps, a_step_that_throws_ends_its_own_rows_and_gives_their_pages_back) {
  std::vector<Answer> alone;
  for (int32_t i = 0; i < kRequests; ++i) {
    TestEngine lone;
    alone.push_back(lone.run(request_of(i)));
  }
  TestEngine t({.prefix_cache_bytes = 0, .max_batch = 2});
  std::vector<std::shared_ptr<Stream>> streams;
  for (int32_t i = 0; i < kRequests; ++i)
    streams.push_back(t.submit(request_of(i)));
  for (int32_t i = 0; i < 10; ++i)
    t.engine->step();
  t.script->throw_next = true;
  t.engine->step();
  EXPECT_EQ(t.engine->stats().pages_used, 0);
  EXPECT_EQ(t.engine->stats().live, kRequests - 2);
  t.drain();
  for (int32_t i = 0; i < kRequests; ++i) {
    Answer answer;
    ASSERT_TRUE(collect(*streams[size_t(i)], &answer));
    EXPECT_EQ(answer.finish, i < 2 ? FinishReason::kError : FinishReason::kLength) << i;
    if (i >= 2) {
      EXPECT_EQ(answer.tokens, alone[size_t(i)].tokens) << i;
    }
  }
}

}  // namespace
}  // namespace invar
