#include "engine/step_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace invar {
namespace {

constexpr double kStep = 3e6, kRow = 0.4e6, kToken = 0.3e6, kRead = 150;

double cost_of(const StepShape& s) {
  return kStep + kRow * s.decode_rows + kRead * double(s.decode_reads) + kToken * s.prompt_tokens +
         kRead * double(s.prompt_reads);
}

StepShape shape_of(std::mt19937& random, bool prompt) {
  StepShape s;
  s.decode_rows = int32_t(random() % 32) + (prompt ? 0 : 1);
  s.decode_reads = s.decode_rows * int64_t(random() % 2000);
  if (prompt) {
    s.prompt_tokens = 1 + int32_t(random() % 500);
    s.prompt_reads = positions_read(int64_t(random() % 8000), s.prompt_tokens);
  }
  return s;
}

TEST(StepCost, learns_what_steps_cost_though_some_are_disturbed) {
  StepCost cost;
  std::mt19937 random(3);
  for (int i = 0; i < 400; ++i) {
    const StepShape s = shape_of(random, i % 3 == 0);
    const double noise = 0.95 + double(random() % 1000) / 10000;  // +-5 %
    cost.observe(s, int64_t(cost_of(s) * noise * (i % 50 == 49 ? 5 : 1)));
  }
  for (int i = 0; i < 100; ++i) {
    const StepShape s = shape_of(random, i % 2 == 0);
    EXPECT_NEAR(cost.predict_ns(s) / cost_of(s), 1, 0.25);
  }
}

TEST(StepCost, what_it_knows_of_prompts_outlives_steps_without_any) {
  StepCost cost;
  std::mt19937 random(4);
  for (int i = 0; i < 100; ++i) {
    const StepShape s = shape_of(random, i % 2 == 0);
    cost.observe(s, int64_t(cost_of(s)));
  }
  const double before = cost.prompt_ns(1000, 200);
  for (int i = 0; i < 100'000; ++i) {
    const StepShape s = shape_of(random, false);
    cost.observe(s, int64_t(cost_of(s)));
  }
  EXPECT_DOUBLE_EQ(cost.prompt_ns(1000, 200), before);
}

TEST(StepCost, follows_a_machine_that_becomes_slower) {
  StepCost cost;
  std::mt19937 random(5);
  for (const double speed : {1.0, 3.0})
    for (int i = 0; i < 300; ++i) {
      const StepShape s = shape_of(random, i % 2 == 0);
      cost.observe(s, int64_t(cost_of(s) * speed));
    }
  for (int i = 0; i < 50; ++i) {
    const StepShape s = shape_of(random, i % 2 == 0);
    EXPECT_NEAR(cost.predict_ns(s) / cost_of(s), 3, 0.6);
  }
}

TEST(StepCost, gives_less_at_once_after_a_step_that_took_far_too_long) {
  StepCost cost;
  const auto run = [&](double factor) {
    const int32_t n = std::max(1, cost.tokens_within(60e6, 1000));
    const StepShape s{0, 0, n, positions_read(1000, n)};
    cost.observe(s, int64_t(cost_of(s) * factor));
    return n;
  };
  for (int i = 0; i < 40; ++i)
    run(1);
  const int32_t usual = run(20);
  EXPECT_LT(run(20), usual / 10);
  for (int i = 0; i < 8; ++i)  // slow for good: prices follow, and the bound holds all the time
    EXPECT_LT(cost_of({0, 0, run(20), 0}) * 20, 4 * 60e6 + kStep * 20) << i;
  for (int i = 0; i < 40; ++i)
    run(1);
  EXPECT_GT(run(1), usual / 2);
}

TEST(StepCost, gives_as_many_tokens_as_fit_and_goes_no_further_than_it_knows) {
  StepCost cost;
  EXPECT_EQ(cost.tokens_within(1, 0), 16);  // nothing is known yet
  for (int32_t tokens : {16, 32, 64, 100, 200, 300})
    for (int32_t position : {0, 3000}) {
      const StepShape s{0, 0, tokens, positions_read(position, tokens)};
      cost.observe(s, int64_t(cost_of(s)));
    }
  EXPECT_EQ(cost.tokens_within(1e12, 0), 600);  // twice the last step's
  for (const int64_t position : {0, 1000, 5000}) {
    const int32_t n = cost.tokens_within(50e6, position);
    EXPECT_LE(cost.prompt_ns(position, n), 50e6);
    EXPECT_GT(cost.prompt_ns(position, n + 1), 50e6);
    EXPECT_GT(n, 20);
  }
  EXPECT_EQ(cost.tokens_within(1, 0), 0);
}

}  // namespace
}  // namespace invar
