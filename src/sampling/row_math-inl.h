// Included by one source file per instruction set with INVAR_ROW_MATH naming the table; internal linkage
// only, so that the linker cannot share code between sets.

#include <cstdint>
#include <limits>

#include "sampling/row_math.h"
#include "tensor/exact_math.h"

namespace invar {
namespace {

constexpr int kLanes = 16;

bool all_finite_row(const float* x, int64_t n) {
  uint32_t bad = 0;
  for (int64_t k = 0; k < n; ++k)
    bad |= uint32_t((bits_of(x[k]) & 0x7F800000u) == 0x7F800000u);
  return bad == 0;
}

float max_row(const float* x, int64_t n) {
  float m[kLanes];
  for (float& lane : m)
    lane = -std::numeric_limits<float>::infinity();
  int64_t k = 0;
  for (; k + kLanes <= n; k += kLanes)
    for (int l = 0; l < kLanes; ++l)
      m[l] = x[k + l] > m[l] ? x[k + l] : m[l];
  for (; k < n; ++k)
    m[0] = x[k] > m[0] ? x[k] : m[0];
  float best = m[0];
  for (const float lane : m)
    best = lane > best ? lane : best;
  return best;
}

template <bool kStore>
float exp_sum_lanes(const float* x, int64_t n, float m, float* e) {
  float s[kLanes] = {};
  int64_t k = 0;
  for (; k + kLanes <= n; k += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const float v = exp_or_zero_f32(x[k + l] - m);
      if (kStore) e[k + l] = v;
      s[l] += v;
    }
  }
  for (int l = 0; k + l < n; ++l) {
    const float v = exp_or_zero_f32(x[k + l] - m);
    if (kStore) e[k + l] = v;
    s[l] += v;
  }
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l)
      s[l] += s[l + width];
  return s[0];
}

float exp_sum_row(const float* x, int64_t n, float m, float* e) {
  return e != nullptr ? exp_sum_lanes<true>(x, n, m, e) : exp_sum_lanes<false>(x, n, m, nullptr);
}

void log_softmax_row(const float* x, int64_t n, float m, double log_sum, float* y) {
  for (int64_t k = 0; k < n; ++k) {
    const float shifted = x[k] - m;
    y[k] = float(double(shifted) - log_sum);
  }
}

}  // namespace

extern const RowMath INVAR_ROW_MATH;
const RowMath INVAR_ROW_MATH = {INVAR_ROW_MATH_NAME, all_finite_row, max_row, exp_sum_row, log_softmax_row};

}  // namespace invar
