#pragma once
// The row kernels as docs/numerics.md says them, element by element: for tests of sampling and of the engine,
// which may not see kernels/. The kernels' own tests hold every instruction set against the same rules.

#include <algorithm>
#include <limits>

#include "tensor/exact_math.h"
#include "tensor/noise.h"
#include "tensor/row_kernels.h"

namespace invar {

inline bool plain_all_finite(const float* x, int64_t n) {
  return std::all_of(x, x + n, [](float v) { return (bits_of(v) & 0x7F800000u) != 0x7F800000u; });
}

inline int64_t plain_argmax(const float* x, int64_t n) {
  float best = -std::numeric_limits<float>::infinity();
  int64_t at = 0;
  for (int64_t k = 0; k < n; ++k)
    if (x[k] > best) best = x[k], at = k;
  return at;
}

inline float plain_exp_sum(const float* x, int64_t n, float max, float* e) {
  float lanes[16] = {};
  for (int64_t k = 0; k < n; ++k) {
    const float term = exp_or_zero_f32(x[k] - max);
    lanes[k % 16] = lanes[k % 16] + term;
    if (e != nullptr) e[k] = term;
  }
  for (const int width : {8, 4, 2, 1})
    for (int l = 0; l < width; ++l)
      lanes[l] = lanes[l] + lanes[l + width];
  return lanes[0];
}

inline void plain_softmax(const float* x, int64_t n, float* p) {
  if (n == 0) return;
  const float sum = plain_exp_sum(x, n, x[plain_argmax(x, n)], p);
  for (int64_t k = 0; k < n; ++k)
    p[k] = p[k] / sum;
}

inline int32_t plain_contenders(const float* x, int32_t begin, int32_t end, const NoiseKey& key, float best,
                                int32_t* ids) {
  int32_t count = 0;
  for (int32_t id = begin; id < end; ++id)
    if (double(x[id]) + gumbel_of(noise_bits(key, id)) >= double(best)) ids[count++] = id;
  return count;
}

inline void plain_divide(const float* x, int64_t n, float divisor, float* y) {
  constexpr float kMax = std::numeric_limits<float>::max();
  for (int64_t k = 0; k < n; ++k)
    y[k] = plain_all_finite(x + k, 1) ? std::clamp(x[k] / divisor, -kMax, kMax) : x[k];
}

template <class Term>
double plain_double_sum(const float* x, int64_t n, const Term& term) {
  double lanes[16] = {};
  for (int64_t k = 0; k < n; ++k)
    lanes[k % 16] = lanes[k % 16] + term(x[k]);
  for (const int width : {8, 4, 2, 1})
    for (int l = 0; l < width; ++l)
      lanes[l] = lanes[l] + lanes[l + width];
  return lanes[0];
}
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
inline double plain_sum(const float* x, int64_t n) {
  return plain_double_sum(x, n, [](float v) { return v == kMinusInfinity ? 0.0 : double(v); });
}
inline double plain_square_sum(const float* x, int64_t n, double mean) {
  return plain_double_sum(x, n, [mean](float v) {
    const double d = double(v) - mean;
    return v == kMinusInfinity ? 0.0 : d * d;
  });
}
inline WeightSums plain_weight_sums(const float* x, int64_t n, float max) {
  const double distances = plain_double_sum(x, n, [max](float v) {
    const float d = v - max;
    return d == kMinusInfinity ? 0.0 : double(exp_or_zero_f32(d)) * double(d);
  });
  return {plain_exp_sum(x, n, max, nullptr), distances};
}

inline constexpr RowKernels kPlainRows = {plain_all_finite, plain_argmax,     plain_exp_sum,
                                          plain_softmax,    plain_contenders, plain_divide,
                                          plain_sum,        plain_square_sum, plain_weight_sums};

}  // namespace invar
