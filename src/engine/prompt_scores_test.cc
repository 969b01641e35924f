// Scores of a prompt's tokens: the bits that the same tokens had when they were generated.
#include <gtest/gtest.h>

#include "engine/testing/engine_fixture.h"

namespace invar {
namespace {

std::vector<int32_t> prompt_of(int32_t n) {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < n; ++i)
    prompt.push_back(int32_t(fake_mix(uint64_t(i)) % kFakeVocab));
  return prompt;
}

GenerateRequest scoring(std::vector<int32_t> prompt, int32_t max_tokens, int32_t alternatives = 7) {
  GenerateRequest r;
  r.prompt = std::move(prompt);
  r.max_tokens = max_tokens;
  r.prompt_logprobs = alternatives;
  r.sampling.logprobs = alternatives;
  r.sampling.temperature = 0;
  return r;
}

TEST(PromptScores, equal_those_of_the_same_tokens_when_generated) {
  TestEngine t;
  const std::vector<int32_t> prompt = prompt_of(70);
  const Answer generated = t.run(scoring(prompt, 100));
  ASSERT_EQ(generated.tokens.size(), 100u);
  std::vector<int32_t> whole = prompt;
  whole.insert(whole.end(), generated.tokens.begin(), generated.tokens.end());
  std::vector<uint64_t> expected = generated.prompt_scores;
  expected.insert(expected.end(), generated.scores.begin(), generated.scores.end());

  for (const int32_t max_tokens : {0, 1}) {
    for (const int32_t chunk : {1, 7, 64, 0}) {
      for (const int32_t logit_rows : {1, 5, 64}) {
        TestEngine other({.prefill_chunk = chunk, .max_batch = 1, .max_logit_rows = logit_rows});
        const Answer scored = other.run(scoring(whole, max_tokens));
        EXPECT_EQ(scored.prompt_tokens, whole);
        EXPECT_EQ(scored.prompt_scores, expected);
        EXPECT_EQ(scored.tokens.size(), size_t(max_tokens));
        EXPECT_EQ(scored.finish, FinishReason::kLength);
      }
    }
  }
}

TEST(PromptScores, first_token_has_none_and_the_others_come_before_the_answer) {
  TestEngine t;
  auto stream = t.submit(scoring({3, 4, 5}, 2, 4));
  t.drain();
  const TokenEvent first = stream->next();
  EXPECT_TRUE(first.of_prompt);
  EXPECT_EQ(first.token, 3);
  EXPECT_EQ(first.logprob, 0);
  EXPECT_TRUE(first.alternatives.empty());
  for (const int32_t token : {4, 5}) {
    const TokenEvent event = stream->next();
    EXPECT_TRUE(event.of_prompt);
    EXPECT_EQ(event.token, token);
    EXPECT_LT(event.logprob, 0);
    EXPECT_EQ(event.alternatives.size(), 4u);
  }
  EXPECT_FALSE(stream->next().of_prompt);
  EXPECT_FALSE(stream->next().of_prompt);
  EXPECT_EQ(t.engine->stats().generated_tokens, 2);
}

TEST(PromptScores, do_not_change_the_answer_and_need_no_alternatives) {
  TestEngine t;
  GenerateRequest plain = scoring(prompt_of(40), 20);
  plain.prompt_logprobs = -1;
  const Answer expected = t.run(std::move(plain));
  EXPECT_TRUE(expected.prompt_tokens.empty());
  GenerateRequest bare = scoring(prompt_of(40), 20);
  bare.prompt_logprobs = 0;
  const Answer got = t.run(std::move(bare));
  EXPECT_EQ(got.tokens, expected.tokens);
  EXPECT_EQ(got.scores, expected.scores);
  EXPECT_EQ(got.prompt_tokens, prompt_of(40));
}

TEST(PromptScores, come_once_when_the_prompt_is_preempted_and_computed_again) {
  // Seven pages. The older request grows to six of them while the younger one's prompt of two pages goes by
  // in small chunks.
  TestEngine t({.context = 400,
                .memory_bytes = 7 * 4096,
                .prefix_cache_bytes = 0,
                .max_step_tokens = 2,
                .max_batch = 2});
  GenerateRequest greedy = scoring(prompt_of(250), 100);
  greedy.prompt_logprobs = -1;
  auto older = t.submit(std::move(greedy));
  while (!older->try_next().has_value())
    ASSERT_TRUE(t.engine->step());
  auto younger = t.submit(scoring(prompt_of(115), 3));
  t.drain();
  Answer answer;
  EXPECT_TRUE(collect(*younger, &answer));
  ASSERT_GT(t.engine->stats().recomputed_tokens, 0);
  EXPECT_EQ(answer.prompt_tokens, prompt_of(115));
  TestEngine reference;
  EXPECT_EQ(answer.prompt_scores, reference.run(scoring(prompt_of(115), 3)).prompt_scores);
}

TEST(PromptScores, logits_that_are_not_finite_are_an_error) {
  TestEngine t;
  t.script->nan_logits = true;
  const Answer a = t.run(scoring({1, 2, 3}, 0));
  EXPECT_EQ(a.finish, FinishReason::kError);
  EXPECT_EQ(a.error.code(), Code::kInternal);
  EXPECT_TRUE(a.prompt_scores.size() <= 1);
}

TEST(PromptScores, go_to_the_first_choice) {
  TestEngine t;
  const auto streams = t.submit(scoring({3, 4, 5}, 2), 3);
  t.drain();
  for (size_t i = 0; i < streams.size(); ++i) {
    Answer answer;
    EXPECT_TRUE(collect(*streams[i], &answer));
    EXPECT_EQ(answer.prompt_tokens.size(), i == 0 ? 3u : 0u);
    EXPECT_EQ(answer.tokens.size(), 2u);
  }
}

TEST(PromptScores, number_of_alternatives_has_bounds) {
  TestEngine t;
  for (const int32_t n : {-2, kFakeVocab + 1}) {
    const auto stream = t.engine->submit(scoring({1}, 1, n));
    ASSERT_FALSE(stream.ok());
    EXPECT_EQ(stream.status().message(), "prompt_logprobs: " + std::to_string(n) + " is outside [-1, 97]");
  }
}

}  // namespace
}  // namespace invar
