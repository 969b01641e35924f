// Prompts that begin alike: what is computed once, who goes on when the one that computes goes.
#include <gtest/gtest.h>

#include "engine/testing/engine_fixture.h"

namespace invar {
namespace {

// `common` tokens that all share, then `own` ones of number `which`.
GenerateRequest alike(int32_t common, int32_t own, int32_t which, int32_t max_tokens = 4) {
  GenerateRequest r = greedy_request(common, max_tokens);
  for (int32_t i = 0; i < own; ++i)
    r.prompt.push_back((i * 7 + which * 13 + 3) % kFakeVocab);
  return r;
}

TEST(PrefixSharing, a_common_prefix_of_prompts_that_arrive_together_is_computed_once) {
  TestEngine t({.max_step_tokens = 128}), alone;
  std::vector<std::shared_ptr<Stream>> streams;
  int64_t needed = 1000;
  for (int32_t i = 0; i < 32; ++i) {
    streams.push_back(t.submit(alike(1000, 10 + i % 3, i)));
    needed += 10 + i % 3;
  }
  t.drain();
  EXPECT_LE(t.engine->stats().prompt_tokens, needed);
  for (int32_t i = 0; i < 32; ++i) {
    Answer answer;
    ASSERT_TRUE(collect(*streams[size_t(i)], &answer));
    EXPECT_EQ(answer.tokens, alone.run(alike(1000, 10 + i % 3, i)).tokens) << i;
  }
  EXPECT_EQ(t.engine->stats().pages_used, 0);
}

TEST(PrefixSharing, another_one_takes_over_when_the_one_that_computes_is_cancelled) {
  TestEngine t({.max_step_tokens = 64}), alone;
  auto first = t.submit(alike(600, 5, 1)), second = t.submit(alike(600, 5, 2));
  t.engine->step();
  t.engine->step();
  EXPECT_EQ(t.trace.back().following, 1);
  first->cancel();
  t.drain();
  Answer answer;
  ASSERT_TRUE(collect(*second, &answer));
  EXPECT_EQ(answer.tokens, alone.run(alike(600, 5, 2)).tokens);
  EXPECT_EQ(t.engine->stats().prompt_tokens, 605);
}

TEST(PrefixSharing, a_later_prompt_says_what_it_found_and_why_not_more) {
  TestEngine t;
  const auto reused = [&](GenerateRequest r) {
    auto stream = t.submit(std::move(r));
    t.drain();
    PromptReuse reuse;
    while (auto event = stream->try_next())
      reuse = event->prompt;
    return reuse;
  };
  EXPECT_EQ(reused(alike(300, 5, 1)).lookup.end, PrefixEnd::kNew);
  const PromptReuse same = reused(alike(300, 5, 1));
  EXPECT_EQ(same.cached_tokens, 304);
  EXPECT_EQ(same.lookup.end, PrefixEnd::kComplete);
  // A token behind whole pages, and no more than one token: nothing is left for a page in part.
  EXPECT_EQ(reused(alike(60, 5, 1)).lookup.end, PrefixEnd::kDiffers);
  const PromptReuse whole = reused(alike(60, 5, 1));
  EXPECT_EQ(whole.cached_tokens, 64);
  EXPECT_EQ(whole.lookup.end, PrefixEnd::kComplete);
  EXPECT_EQ(whole.end_position, 64);
  EXPECT_EQ(reused(alike(0, 1, 1)).lookup.end, PrefixEnd::kComplete);
  const PromptReuse other = reused(alike(300, 5, 2));
  EXPECT_EQ(other.cached_tokens, 300);
  EXPECT_EQ(other.lookup.end, PrefixEnd::kDiffers);
  EXPECT_EQ(other.end_position, 300);
  EXPECT_EQ(other.lookup.known_token, alike(300, 5, 1).prompt[300]);
  GenerateRequest salted = alike(300, 5, 1);
  salted.cache_salt = 7;
  const PromptReuse foreign = reused(std::move(salted));
  EXPECT_EQ(foreign.cached_tokens, 0);
  EXPECT_EQ(foreign.lookup.end, PrefixEnd::kOtherSalt);
  // Another tenant gets nothing, and is not told that there is something.
  GenerateRequest stranger = alike(300, 5, 1);
  stranger.tenant = 2;
  const PromptReuse nothing = reused(std::move(stranger));
  EXPECT_EQ(nothing.cached_tokens, 0);
  EXPECT_EQ(nothing.lookup.end, PrefixEnd::kNew);
}

// It found nothing when it came, and was told what it did find when the one before it had computed it.
TEST(PrefixSharing, one_that_waited_for_another_says_where_they_part) {
  TestEngine t({.max_step_tokens = 64});
  auto first = t.submit(alike(600, 5, 1)), second = t.submit(alike(600, 5, 2));
  t.drain();
  TokenEvent last;
  while (auto event = second->try_next())
    last = std::move(*event);
  EXPECT_EQ(last.prompt.cached_tokens, 600);
  EXPECT_EQ(last.prompt.lookup.end, PrefixEnd::kDiffers);
  EXPECT_EQ(last.prompt.end_position, 600);
  EXPECT_EQ(last.prompt.lookup.known_token, alike(600, 5, 1).prompt[600]);
  EXPECT_GT(last.queued_ns, 0);
  EXPECT_EQ(last.preemptions, 0);
}

// Keys of the two were rotated by other frequencies.
TEST(PrefixSharing, prompts_of_the_short_and_of_the_long_rope_share_nothing) {
  TestEngine t;
  t.graph.ropes.push_back({.dim = 2, .inv_freq = {1}, .long_inv_freq = {0.5f}, .short_context = 200});
  const auto cached = [&](int32_t common) {
    auto stream = t.submit(alike(common, 5, 1));
    t.drain();
    int32_t tokens = 0;
    while (auto event = stream->try_next())
      tokens = event->prompt.cached_tokens;
    return tokens;
  };
  EXPECT_EQ(cached(150), 0);
  EXPECT_EQ(cached(150), 154);
  EXPECT_EQ(cached(195), 150);  // 200 tokens: still the short one
  EXPECT_EQ(cached(250), 0);
  EXPECT_EQ(cached(300), 250);
}

TEST(PrefixSharing, kept_pages_give_way_to_requests) {
  // Eight pages: what earlier prompts left must not keep a long one out.
  TestEngine t({.context = 500, .memory_bytes = 8 * 4096}), alone;
  for (int32_t i = 0; i < 6; ++i)
    t.run(alike(0, 150, i));
  EXPECT_GT(t.engine->stats().pages_idle, 0);
  EXPECT_EQ(t.run(alike(0, 490, 9, 8)).tokens, alone.run(alike(0, 490, 9, 8)).tokens);
  EXPECT_EQ(t.engine->stats().preemptions, 0);
  EXPECT_GT(t.engine->stats().prefix_evictions, 0);
}

}  // namespace
}  // namespace invar
