#include "engine/admission.h"

#include <gtest/gtest.h>

#include "engine/testing/fake_backend.h"

namespace invar {
namespace {

constexpr uint64_t kPage = 4096;  // bytes of a page of either group of the fake graph in f16

Result<PoolPlan> plan_of(const EngineOptions& options, uint64_t free_bytes, int32_t window = 0) {
  return plan_pool(fake_graph(window), *find_kv_codec("f16"), 1024, options, free_bytes);
}

TEST(Admission, default_context_is_the_trained_length_whatever_is_free) {
  for (const uint64_t free : {32 * kPage, 100 * kPage, uint64_t{1} << 40}) {
    const auto plan = plan_of({}, free);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(plan->context, 1024);
    EXPECT_GE(plan->classes[0].pages, 16);
    EXPECT_LE(plan->classes[0].pages, 16 * 64);
  }
}

TEST(Admission, pool_that_cannot_hold_one_sequence_is_refused_with_numbers_and_remedies) {
  EXPECT_EQ(plan_of({}, 32 * kPage - 2).status().message(),
            "the KV cache of one sequence of 1024 tokens in f16 takes 64.0 KiB, the pool may take 64.0 KiB "
            "(half of "
            "the free memory); give --ctx 960 or smaller, or --memory 1MiB or more");
  const std::string given = plan_of({.memory_bytes = 3 * kPage}, 0).status().message();
  EXPECT_NE(given.find("12.0 KiB (--memory); give --ctx 192 or smaller"), std::string::npos) << given;
  const std::string tiny = plan_of({.memory_bytes = 10}, 0).status().message();
  EXPECT_NE(tiny.find("give --memory 1MiB or more"), std::string::npos) << tiny;
  const auto with_context = plan_of({.context = 192, .memory_bytes = 3 * kPage}, 0);
  ASSERT_TRUE(with_context.ok());
  EXPECT_EQ(with_context->context, 192);
}

TEST(Admission, every_group_of_the_smallest_pool_holds_one_sequence) {
  for (const int32_t step : {1, 64, 512}) {
    EngineOptions options{.max_step_tokens = step, .max_batch = 1};
    uint64_t pages = 16;
    while (!plan_of({.memory_bytes = pages * kPage, .max_step_tokens = step, .max_batch = 1}, 0, 50).ok())
      ASSERT_LT(++pages, 33u);
    options.memory_bytes = pages * kPage;
    const auto plan = plan_of(options, 0, 50);
    for (size_t g = 0; g < 2; ++g)
      EXPECT_GE(plan->classes[g].pages, plan->placements[g].peak_pages(1024, step)) << g;
  }
}

TEST(Admission, budgets_of_a_step_rise_with_the_batch) {
  const auto raised = resolve_options({.max_step_tokens = 20, .max_batch = 4096, .max_logit_rows = 7});
  ASSERT_TRUE(raised.ok());
  EXPECT_EQ(raised->max_batch, 4096);
  EXPECT_EQ(raised->max_step_tokens, 4096);
  EXPECT_EQ(raised->max_logit_rows, 4096);
  const auto kept = resolve_options({.max_step_tokens = 20, .max_batch = 3, .max_logit_rows = 7});
  EXPECT_EQ(kept->max_step_tokens, 20);
  EXPECT_EQ(kept->max_logit_rows, 7);
}

}  // namespace
}  // namespace invar
