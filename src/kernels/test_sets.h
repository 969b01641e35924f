#pragma once
// For kernel tests: every instruction set to compare with the specification ("scalar-portable"), those of the
// binary and the emulated AVX-512. A set that this CPU lacks runs as a skipped test that says "NOT RUN".

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/kernel_table.h"

namespace invar {

const KernelTable& specification();                        // scalar-portable
const std::vector<const KernelTable*>& all_kernel_sets();  // all sets, runnable or not
bool runnable(const KernelTable& table);

// Test fixture: GetParam() is a set; skips where the CPU lacks it. Instantiate with INVAR_EVERY_SET(Suite).
class EverySet : public testing::TestWithParam<const KernelTable*> {
 protected:
  void SetUp() override {
    if (!runnable(*GetParam())) GTEST_SKIP() << "NOT RUN: " << GetParam()->name << " (not on this CPU)";
  }
  const KernelTable& set() const { return *GetParam(); }
};
std::string set_test_name(const testing::TestParamInfo<const KernelTable*>& info);

#define INVAR_EVERY_SET(suite) \
  INSTANTIATE_TEST_SUITE_P(Isa, suite, testing::ValuesIn(all_kernel_sets()), set_test_name)

// Small xorshift generator: the same data everywhere.
class TestRandom {
 public:
  explicit TestRandom(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  uint32_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return uint32_t(state_ >> 16);
  }
  int below(int n) { return int(next() % uint32_t(n)); }
  float uniform(float low, float high) { return low + (high - low) * (float(next() >> 8) * 0x1p-24f); }
  // Sum of uniforms: bell shaped, scale ~1.
  float normal() { return uniform(-1, 1) + uniform(-1, 1) + uniform(-1, 1); }

 private:
  uint64_t state_;
};

// Index of the first element whose bits differ (any NaN equals any NaN), or -1.
int64_t first_difference(const float* a, const float* b, int64_t n);

}  // namespace invar
