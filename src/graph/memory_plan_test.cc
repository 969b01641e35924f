#include "graph/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace invar {
namespace {

bool overlap(size_t a, size_t a_bytes, size_t b, size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

TEST(MemoryPlan, reuses_the_space_of_dead_buffers) {
  // A chain: each buffer is written at time i and read at i + 1.
  std::vector<BufferUse> uses;
  for (int i = 0; i < 30; i++)
    uses.push_back({640, i, i + 1});
  EXPECT_EQ(plan_memory(uses).bytes, 2u * 640);
}

TEST(MemoryPlan, keeps_a_buffer_that_lives_throughout) {
  const std::vector<BufferUse> uses = {{64, 0, 9}, {128, 1, 2}, {128, 3, 4}, {128, 5, 5}};
  const MemoryPlan plan = plan_memory(uses);
  EXPECT_EQ(plan.bytes, 64u + 128u);
}

TEST(MemoryPlan, of_nothing_is_empty) {
  EXPECT_EQ(plan_memory({}).bytes, 0u);
}

TEST(MemoryPlan, never_overlaps_buffers_used_at_the_same_time) {
  std::mt19937 rng(1);
  for (int round = 0; round < 200; round++) {
    std::vector<BufferUse> uses(1 + rng() % 40);
    size_t sum = 0;
    for (BufferUse& use : uses) {
      use.bytes = rng() % 1000;
      use.first_time = int32_t(rng() % 20);
      use.last_time = use.first_time + int32_t(rng() % 6);
      sum += (use.bytes + 63) / 64 * 64;
    }
    const MemoryPlan plan = plan_memory(uses);
    EXPECT_LE(plan.bytes, sum);
    for (size_t i = 0; i < uses.size(); i++) {
      EXPECT_EQ(plan.offsets[i] % 64, 0u);
      EXPECT_LE(plan.offsets[i] + uses[i].bytes, plan.bytes);
      for (size_t j = 0; j < i; j++) {
        if (uses[i].last_time < uses[j].first_time || uses[j].last_time < uses[i].first_time) continue;
        EXPECT_FALSE(overlap(plan.offsets[i], uses[i].bytes, plan.offsets[j], uses[j].bytes))
            << i << " " << j;
      }
    }
  }
}

}  // namespace
}  // namespace invar
