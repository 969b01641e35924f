#pragma once
// RowKernels: loops over one row of n numbers, most often the logits of a vocabulary, in the fixed order of
// docs/numerics.md (16 lanes by k mod 16, then a tree). Every instruction set has them in its kernel table;
// sampling gets those of the backend, so that one choice governs both. Pure functions, any thread.

#include <cstdint>

#include "tensor/noise.h"

namespace invar {

// With d = x - max and the weights E(d).
struct WeightSums {
  float weights;     // what exp_sum returns
  double distances;  // of double(E(d)) * double(d)
};

struct RowKernels {
  bool (*all_finite)(const float* x, int64_t n);
  // The lowest index of the highest value. NaN never wins; 0 when nothing exceeds -infinity.
  int64_t (*argmax)(const float* x, int64_t n);
  // e[k] = E(x[k] - max); returns their sum. e may be x, or nullptr where only the sum is wanted.
  float (*exp_sum)(const float* x, int64_t n, float max, float* e);
  void (*softmax)(const float* x, int64_t n, float* p);  // E(x - max) / sum
  // The tokens of [begin, end), begin a multiple of 16, that may reach `best` with their Gumbel noise,
  // ascending; returns how many. Leaves none out, and names few that cannot. x: [vocab], -infinity never
  // does. ids: room for end - begin.
  int32_t (*contenders)(const float* x, int32_t begin, int32_t end, const NoiseKey& key, float best,
                        int32_t* ids);
  // y = x / divisor, a finite one bounded to the range of fp32. y may be x.
  void (*divide)(const float* x, int64_t n, float divisor, float* y);
  // Sums in double, -infinity left out: of x; of (x - mean)^2.
  double (*sum)(const float* x, int64_t n);
  double (*square_sum)(const float* x, int64_t n, double mean);
  // Both sums of one pass; the one in double leaves a distance of -infinity out.
  WeightSums (*weight_sums)(const float* x, int64_t n, float max);
};

}  // namespace invar
