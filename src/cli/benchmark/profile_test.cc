#include "cli/benchmark/profile.h"

#include <gtest/gtest.h>

#include <thread>

namespace invar {
namespace {

TraceSpan span(const char* name, SpanKind kind, int64_t begin_ns, int64_t end_ns, SpanWork work = {}) {
  return {name, kind, begin_ns, end_ns, work};
}

TEST(Profile, shares_the_steps_among_their_phases) {
  Profile p;
  p.take(span("forward", SpanKind::kForward, 0, 10));  // nobody has asked yet
  p.start();
  for (const int64_t at : {0, 1000}) {
    p.take(span("attn", SpanKind::kPhase, at + 100, at + 400, {.rows = 1, .bytes = 50, .macs = 7}));
    p.take(span("tiles", SpanKind::kTiles, at + 110, at + 360));
    p.take(span("mlp", SpanKind::kPhase, at + 400, at + 500, {.rows = 1, .bytes = 30}));
    p.take(span("tiles", SpanKind::kTiles, at + 400, at + 500));
    p.take(span("forward", SpanKind::kForward, at + 90, at + 510));
    p.take(span("sample", SpanKind::kSampling, at + 510, at + 560));
    p.take(span("step", SpanKind::kStep, at, at + 700));
  }
  p.take(span("step", SpanKind::kStep, 2000, 2000));                              // found nothing to do
  std::thread([&] { p.take(span("tiles", SpanKind::kTiles, 0, 5000)); }).join();  // not the stepping thread

  EXPECT_EQ(p.steps(), 2);
  EXPECT_EQ(p.step_ns(), 1400);
  EXPECT_DOUBLE_EQ(p.bytes_per_step(), 80);
  EXPECT_DOUBLE_EQ(p.outside_share(), 0.5);
  const std::vector<PhaseTime> phases = p.phases();
  ASSERT_EQ(phases.size(), 4u);
  EXPECT_EQ(phases[0].name, "attn");
  EXPECT_EQ(phases[0].runs, 2);
  EXPECT_EQ(phases[0].ns, 600);
  EXPECT_DOUBLE_EQ(phases[0].macs, 14);
  EXPECT_EQ(phases[1].name, "(between phases)");
  EXPECT_EQ(phases[1].ns, 500);
  EXPECT_EQ(phases[2].name, "mlp");
  EXPECT_EQ(phases[3].name, "(sampling)");
  EXPECT_EQ(phases[3].ns, 100);
}

TEST(Profile, hands_spans_on_and_takes_the_place_only_for_a_while) {
  Profile first, second;
  first.start();
  second.start();
  {
    const Traced traced("forward", SpanKind::kForward);
  }
  EXPECT_EQ(second.steps(), 1);
  second.stop();
  {
    const Traced traced("forward", SpanKind::kForward);
  }
  EXPECT_EQ(second.steps(), 1);
  EXPECT_EQ(first.steps(), 2);
  first.start();
  EXPECT_EQ(first.steps(), 0);
  first.stop();
  EXPECT_EQ(trace_sink(), nullptr);
}

TEST(Profile, takes_the_end_of_a_span_that_comes_late) {
  Profile p;
  p.start();
  {
    const Traced late("forward", SpanKind::kForward);
    p.stop();
  }
  EXPECT_EQ(p.steps(), 0);
}

TEST(Traced, is_off_where_nobody_listens) {
  EXPECT_EQ(trace_sink(), nullptr);
  const Traced traced("step", SpanKind::kStep);
  EXPECT_FALSE(traced.on());
}

}  // namespace
}  // namespace invar
