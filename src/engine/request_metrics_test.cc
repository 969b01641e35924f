#include "engine/request_metrics.h"

#include <gtest/gtest.h>

#include "engine/histogram.h"
#include "engine/testing/engine_fixture.h"

namespace invar {
namespace {

TEST(Histogram, value_at_a_bound_lies_below_it_and_large_ones_above_all) {
  Histogram h({1, 2, 5});
  for (const double v : {0.5, 1.0, 1.5, 2.0, 5.0, 5.5, 100.0})
    h.observe(v);
  const HistogramStats s = h.snapshot();
  EXPECT_EQ(s.bounds, (std::vector<double>{1, 2, 5}));
  EXPECT_EQ(s.counts, (std::vector<int64_t>{2, 2, 1, 2}));
  EXPECT_EQ(s.sum, 115.5);
  EXPECT_EQ(s.count(), 7);
}

TEST(RequestMetrics, buckets_of_token_counts_end_at_the_context) {
  EXPECT_EQ(RequestMetrics(100).snapshot().prompt_tokens.bounds,
            (std::vector<double>{1, 2, 5, 10, 20, 50, 100}));
  EXPECT_EQ(RequestMetrics(99).snapshot().generated_tokens.bounds.back(), 50);
  EXPECT_EQ(RequestMetrics(INT32_MAX).snapshot().prompt_tokens.bounds.back(), 2e9);
}

TEST(RequestMetrics, times_are_counted_from_the_moment_they_belong_to) {
  RequestMetrics m(1000);
  constexpr int64_t kSecond = 1'000'000'000;
  RequestTimes times{.submitted = 10 * kSecond, .scheduled = 12 * kSecond};
  m.published(times, 1, 15 * kSecond);
  m.published(times, 3, 22 * kSecond);
  m.ended(times, FinishReason::kStop, 5, 4, 30 * kSecond);
  const RequestStats s = m.snapshot();
  EXPECT_EQ(s.queue_s.sum, 2);
  EXPECT_EQ(s.prefill_s.sum, 3);
  EXPECT_EQ(s.decode_s.sum, 7);
  EXPECT_EQ(s.end_to_end_s.sum, 20);
  EXPECT_EQ(s.time_to_first_token_s.sum, 5);
  EXPECT_EQ(s.inter_token_s.sum, 7);
  EXPECT_EQ(s.inter_token_s.count(), 1);
  EXPECT_EQ(s.prompt_tokens.sum, 5);
  EXPECT_EQ(s.generated_tokens.sum, 4);
  EXPECT_EQ(m.generated_tokens(), 4);
  EXPECT_EQ(m.requests_ended(), 1);
}

TEST(RequestMetrics, request_that_never_ran_waited_until_its_end) {
  RequestMetrics m(1000);
  m.ended({.submitted = 5}, FinishReason::kCancelled, 3, 0, 5 + 4'000'000'000);
  const RequestStats s = m.snapshot();
  EXPECT_EQ(s.queue_s.sum, 4);
  EXPECT_EQ(s.end_to_end_s.sum, 4);
  EXPECT_EQ(s.prefill_s.count(), 0);
  EXPECT_EQ(s.time_to_first_token_s.count(), 0);
}

TEST(EngineStats, count_every_request_by_how_it_ended) {
  TestEngine t({.max_batch = 4});
  const Answer plain = t.run(greedy_request(7, 20));
  GenerateRequest stopping = greedy_request(7, 20);
  stopping.stop_ids = {plain.tokens[3]};
  const size_t stopped_after = t.run(std::move(stopping)).tokens.size();
  t.script->faults = [](int32_t, int32_t position) { return position == 50; };
  t.run(greedy_request(60, 5));
  auto cancelled = t.submit(greedy_request(9, 5), 2);
  EXPECT_EQ(t.engine->stats().live, 2);
  EXPECT_EQ(t.engine->stats().waiting, 2) << "the inbox included";
  t.engine->step();
  EXPECT_EQ(t.engine->stats().running, 1);
  EXPECT_EQ(t.engine->stats().waiting, 1) << "the second choice starts with the next step";
  cancelled.clear();
  t.drain();
  const EngineStats s = t.engine->stats();
  EXPECT_EQ(s.requests.reached_length, 1);
  EXPECT_EQ(s.requests.stopped, 1);
  EXPECT_EQ(s.requests.failed, 1);
  EXPECT_EQ(s.requests.cancelled, 2);
  EXPECT_EQ(s.live, 0);
  EXPECT_EQ(s.running, 0);
  EXPECT_EQ(s.waiting, 0);
  EXPECT_EQ(s.requests.end_to_end_s.count(), 5);
  EXPECT_EQ(s.requests.queue_s.count(), 5);
  EXPECT_EQ(s.requests.time_to_first_token_s.count(), 4) << "the faulted one has none";
  EXPECT_EQ(s.requests.prompt_tokens.sum, 7 + 7 + 60 + 9 + 9);
  EXPECT_EQ(s.generated_tokens, int64_t(20 + stopped_after + 2));
  EXPECT_EQ(s.requests.generated_tokens.sum, s.generated_tokens);
  EXPECT_EQ(s.requests.inter_token_s.count(), int64_t(19 + stopped_after - 1));
  EXPECT_EQ(s.step_tokens.count(), s.steps);
}

}  // namespace
}  // namespace invar
