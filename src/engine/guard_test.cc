// What the engine does with a guard's verdicts and masks.
#include "engine/guard.h"

#include <gtest/gtest.h>

#include <functional>

#include "engine/testing/engine_fixture.h"

namespace invar {
namespace {

struct Script {
  std::function<Verdict(int32_t nth, int32_t token)> accept = [](int32_t, int32_t) { return Verdict(); };
  std::function<bool(int32_t nth, std::span<uint32_t>)> mask = [](int32_t, std::span<uint32_t>) {
    return false;
  };
};

class ScriptedGuard : public Guard {
 public:
  ScriptedGuard(Script script, std::vector<int32_t>* seen) : script_(std::move(script)), seen_(seen) {}
  bool mask(std::span<uint32_t> words) override { return script_.mask(int32_t(seen_->size()), words); }
  Verdict accept(int32_t token) override {
    seen_->push_back(token);
    return script_.accept(int32_t(seen_->size()) - 1, token);
  }
  std::unique_ptr<Guard> clone() const override { return std::make_unique<ScriptedGuard>(*this); }

 private:
  Script script_;
  std::vector<int32_t>* seen_;
};

class GuardTest : public testing::Test {
 protected:
  Answer run(Script script, int32_t max_tokens = 8, std::vector<int32_t> stop_ids = {}) {
    seen_.clear();
    GenerateRequest r;
    r.prompt = {3, 1, 4, 1, 5};
    r.max_tokens = max_tokens;
    r.sampling.temperature = 0;
    r.stop_ids = std::move(stop_ids);
    r.guard = std::make_unique<ScriptedGuard>(std::move(script), &seen_);
    return t_.run(std::move(r));
  }
  TestEngine t_;
  std::vector<int32_t> seen_;
};

TEST_F(GuardTest, silent_guard_changes_nothing_and_sees_every_token) {
  const Answer a = run({});
  EXPECT_EQ(a.tokens.size(), 8u);
  EXPECT_EQ(seen_, a.tokens);
}

TEST_F(GuardTest, stop_keeps_the_token_and_stop_before_drops_it) {
  const Answer all = run({});
  const auto at_third = [](Verdict::Action action) {
    return Script{.accept = [action](int32_t nth, int32_t) {
      return Verdict{nth == 2 ? action : Verdict::Action::kContinue, {}};
    }};
  };
  const Answer stop = run(at_third(Verdict::Action::kStop));
  EXPECT_EQ(stop.tokens, std::vector<int32_t>(all.tokens.begin(), all.tokens.begin() + 3));
  EXPECT_EQ(stop.finish, FinishReason::kStop);
  const Answer before = run(at_third(Verdict::Action::kStopBefore));
  EXPECT_EQ(before.tokens, std::vector<int32_t>(all.tokens.begin(), all.tokens.begin() + 2));
  EXPECT_EQ(before.finish, FinishReason::kStop);
  EXPECT_EQ(t_.engine->stats().pages_used, 0);
}

TEST_F(GuardTest, forced_tokens_follow_as_if_they_had_been_part_of_the_prompt) {
  static const std::vector<int32_t> forced = {11, 12, 13};
  const Answer a =
      run({.accept = [](int32_t nth, int32_t) { return nth == 1 ? Verdict{.forced = forced} : Verdict(); }});
  ASSERT_EQ(a.tokens.size(), 8u);
  EXPECT_EQ(std::vector<int32_t>(a.tokens.begin() + 2, a.tokens.begin() + 5), forced);
  EXPECT_EQ(seen_, a.tokens);

  GenerateRequest same;
  same.prompt = {3, 1, 4, 1, 5};
  same.prompt.insert(same.prompt.end(), a.tokens.begin(), a.tokens.begin() + 5);
  same.max_tokens = 3;
  same.sampling.temperature = 0;
  const Answer b = t_.run(std::move(same));
  EXPECT_EQ(b.tokens, std::vector<int32_t>(a.tokens.begin() + 5, a.tokens.end()));
  EXPECT_EQ(b.logits, (std::vector<std::pair<int32_t, uint64_t>>(a.logits.begin() + 2, a.logits.end())));
}

TEST_F(GuardTest, forced_tokens_take_one_step_together) {
  static const std::vector<int32_t> forced(5, 20);
  const size_t before = t_.trace.size();
  run({.accept = [](int32_t nth, int32_t) { return nth == 0 ? Verdict{.forced = forced} : Verdict(); }}, 7);
  ASSERT_EQ(t_.trace.size() - before, 2u) << "prompt, then one token and five forced ones";
  EXPECT_EQ(t_.trace.back().decode_rows, 1);
  EXPECT_EQ(t_.trace.back().prompt_rows, 0);
  EXPECT_EQ(t_.engine->stats().prompt_tokens, 5) << "forced tokens are no prompt";
}

TEST_F(GuardTest, last_forced_token_may_force_more) {
  static const std::vector<int32_t> first = {11, 12}, second = {13};
  const Answer a = run({.accept = [](int32_t nth, int32_t token) {
    if (nth == 0) return Verdict{.forced = first};
    return token == 12 ? Verdict{.forced = second} : Verdict();
  }});
  EXPECT_EQ(std::vector<int32_t>(a.tokens.begin() + 1, a.tokens.begin() + 4),
            (std::vector<int32_t>{11, 12, 13}));
}

TEST_F(GuardTest, stops_and_lengths_apply_to_forced_tokens) {
  static const std::vector<int32_t> forced = {11, 12, 13, 14};
  const Script script{
      .accept = [](int32_t nth, int32_t) { return nth == 0 ? Verdict{.forced = forced} : Verdict(); }};
  const Answer cut = run(script, 3);
  EXPECT_EQ(cut.tokens.size(), 3u);
  EXPECT_EQ(cut.finish, FinishReason::kLength);
  const Answer stopped = run(script, 8, {13});
  EXPECT_EQ(stopped.tokens.size(), 3u);
  EXPECT_EQ(stopped.finish, FinishReason::kStop);
}

TEST_F(GuardTest, forced_tokens_outside_the_vocabulary_are_an_error) {
  for (const int32_t id : {-1, kFakeVocab}) {
    const std::vector<int32_t> forced = {7, id, 8};
    const Answer a = run(
        {.accept = [&](int32_t nth, int32_t) { return nth == 2 ? Verdict{.forced = forced} : Verdict(); }});
    EXPECT_EQ(a.finish, FinishReason::kError);
    EXPECT_EQ(a.tokens.size(), 4u);  // three chosen ones, and the forced one that is a token
    EXPECT_NE(a.error.message().find("outside the vocabulary of 97"), std::string::npos);
  }
}

TEST_F(GuardTest, mask_decides_what_can_be_chosen) {
  const Answer a = run({.mask = [](int32_t nth, std::span<uint32_t> words) {
    std::fill(words.begin(), words.end(), 0);
    words[2] = 1u << (nth % 8);
    return nth % 2 == 0;
  }});
  for (int32_t i = 0; i < 8; i += 2)
    EXPECT_EQ(a.tokens[size_t(i)], 64 + i % 8);
}

TEST_F(GuardTest, mask_that_allows_nothing_is_an_error) {
  const Answer a = run({.mask = [](int32_t, std::span<uint32_t> words) {
    std::fill(words.begin(), words.end(), 0);
    return true;
  }});
  EXPECT_EQ(a.finish, FinishReason::kError);
}

TEST_F(GuardTest, exception_of_a_guard_ends_its_own_request_only) {
  const Answer expected = run({});
  const Script in_accept{.accept = [](int32_t nth, int32_t) -> Verdict {
    if (nth == 2) throw std::runtime_error("grammar broke");
    return {};
  }};
  const Script in_mask{.mask = [](int32_t nth, std::span<uint32_t>) -> bool {
    if (nth == 2) throw std::runtime_error("grammar broke");
    return false;
  }};
  for (const Script& script : {in_accept, in_mask}) {
    const Answer a = run(script);
    EXPECT_EQ(a.finish, FinishReason::kError);
    EXPECT_NE(a.error.message().find("grammar broke"), std::string::npos);
    EXPECT_EQ(a.tokens, std::vector<int32_t>(expected.tokens.begin(), expected.tokens.begin() + 2));
    EXPECT_EQ(t_.engine->stats().pages_used, 0);
  }
  EXPECT_EQ(run({}).tokens, expected.tokens);
}

}  // namespace
}  // namespace invar
