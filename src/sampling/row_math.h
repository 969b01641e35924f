#pragma once
// Loops over one row of the vocabulary in the fixed order of docs/numerics.md (16 lanes by k mod 16, then a
// tree). Compiled twice, for the baseline and with hardware FMA: the same bits, chosen once by what the CPU
// has.

#include <cstdint>
#include <span>

namespace invar {

struct RowMath {
  const char* name;
  bool (*all_finite)(const float* x, int64_t n);
  float (*max)(const float* x, int64_t n);  // no NaN; -infinity allowed
  // sum of E(x[k] - m); e[k] gets each term where e is not null.
  float (*exp_sum)(const float* x, int64_t n, float m, float* e);
  // y[k] = RN(double(x[k] - m) - log_sum)
  void (*log_softmax)(const float* x, int64_t n, float m, double log_sum, float* y);
};

const RowMath& row_math();                       // the best of this CPU
std::span<const RowMath* const> all_row_math();  // those this CPU can run, the portable one first

}  // namespace invar
