#pragma once
// The row kernels as docs/numerics.md says them, element by element: for tests of sampling and of the engine,
// which may not see kernels/. The kernels' own tests hold every instruction set against the same rules.

#include <algorithm>
#include <limits>

#include "tensor/exact_math.h"
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

inline constexpr RowKernels kPlainRows = {plain_all_finite, plain_argmax, plain_exp_sum, plain_softmax};

}  // namespace invar
