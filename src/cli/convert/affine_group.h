#pragma once
// A group of weights as MLX keeps them: w ~ scale * code + bias with codes of 4 bits. The same numbers on
// every machine. Pure functions.

#include <cstdint>

#include "tensor/dtype.h"

namespace invar {

struct AffineGroup {
  uint16_t scale, bias;  // bits of the dtype
};

// n finite weights; dtype: kF16 or kBF16. The end of the range that is farther from 0 is hit exactly, 0
// within the range up to the rounding of the scale; codes belong to the rounded scale and bias. False: F16
// cannot hold the scale or the bias.
bool quantize_affine4(const float* w, int n, Dtype dtype, AffineGroup* group, uint8_t* codes);

}  // namespace invar
