#include "sampling/row_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tensor/exact_math.h"

namespace invar {
namespace {

std::vector<float> random_row(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> x(size_t(n), 0.0f);
  for (float& v : x)
    v = float(int32_t(random() % 200001) - 100000) / 1500.0f;
  if (n > 3) x[2] = -std::numeric_limits<float>::infinity();
  return x;
}

// Section 1 of the contract, written element by element.
float sum_by_lanes(const std::vector<float>& x, float m) {
  float lanes[16] = {};
  for (size_t k = 0; k < x.size(); ++k)
    lanes[k % 16] = lanes[k % 16] + exp_or_zero_f32(x[k] - m);
  for (const int width : {8, 4, 2, 1})
    for (int l = 0; l < width; ++l)
      lanes[l] = lanes[l] + lanes[l + width];
  return lanes[0];
}

TEST(RowMath, every_build_has_the_bits_of_the_contract) {
  for (const RowMath* math : all_row_math()) {
    for (const int64_t n : {1, 2, 15, 16, 17, 480, 505, 49152}) {
      SCOPED_TRACE(testing::Message() << math->name << " n=" << n);
      const std::vector<float> x = random_row(n, uint32_t(n));
      float m = x[0];
      for (const float v : x)
        m = std::max(m, v);
      EXPECT_EQ(math->max(x.data(), n), m);
      std::vector<float> e(x.size()), y(x.size());
      const float sum = math->exp_sum(x.data(), n, m, e.data());
      EXPECT_EQ(bits_of(sum), bits_of(sum_by_lanes(x, m)));
      EXPECT_EQ(bits_of(math->exp_sum(x.data(), n, m, nullptr)), bits_of(sum));
      math->log_softmax(x.data(), n, m, 1.25, y.data());
      for (size_t k = 0; k < x.size(); ++k) {
        ASSERT_EQ(bits_of(e[k]), bits_of(exp_or_zero_f32(x[k] - m)));
        ASSERT_EQ(bits_of(y[k]), bits_of(float(double(x[k] - m) - 1.25)));
      }
    }
  }
}

TEST(RowMath, finite_means_every_element) {
  for (const RowMath* math : all_row_math()) {
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      for (const int64_t n : {1, 16, 33}) {
        std::vector<float> x(size_t(n), 1.0f);
        EXPECT_TRUE(math->all_finite(x.data(), n));
        x.back() = bad;
        EXPECT_FALSE(math->all_finite(x.data(), n));
      }
    }
  }
}

}  // namespace
}  // namespace invar
