#pragma once
// Plain decoding of packed weights, for the scalar set and for single rows (embeddings): code by code,
// straight from the layout comment of tensor/packed.h. Included once per instruction set.

#include "kernels/cpu/linear_forms.h"
#include "tensor/exact_math.h"
#include "tensor/float16.h"

namespace invar::INVAR_ISA {

INVAR_MEMBER float f16_at(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return f16_to_f32(h);
}
INVAR_MEMBER float bf16_at(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return bf16_to_f32(h);
}

// Code of column k (0..31) and channel c, before the zero point.
template <class F>
INVAR_MEMBER int code_at(const uint8_t* planes, const CodeTable* table, int k, int c) {
  const int quad = k / 4, lane = c * 4 + k % 4;
  const auto two_bits = [&](const uint8_t* p) { return p[quad / 4 * 64 + lane] >> (quad % 4 * 2) & 3; };
  const auto one_bit = [&](const uint8_t* p) { return p[lane] >> quad & 1; };
  const auto four_bits = [&](const uint8_t* p) { return p[quad % 4 * 64 + lane] >> (quad / 4 * 4) & 15; };
  switch (F::kBits) {
    case 2:
      return two_bits(planes);
    case 3:
      return two_bits(planes) | one_bit(planes + 128) << 2;
    case 4:
      return F::kTable ? table->code[four_bits(planes)] : four_bits(planes);
    case 5:
      return four_bits(planes) | one_bit(planes + 256) << 4;
    case 6:
      return four_bits(planes) | two_bits(planes + 256) << 4;
    default:
      return planes[quad * 64 + lane];
  }
}

// sw and bw of channel c for scale s (0 or 1) of a group; bw is +0 where the form has none.
template <class F>
INVAR_MEMBER void scale_at(const GroupAddress& at, int s, int c, float* scale, float* bias) {
  const uint8_t* p = at.record + F::kScaleHead + (at.index * F::kScales + s) * F::kScaleBytes;
  *bias = 0.0f;
  if (F::kHalfScale) {
    const auto half_at = F::kScale == ScaleKind::kF16 ? f16_at : bf16_at;
    *scale = half_at(p + c * 2);
    if (F::kBias) *bias = half_at(p + 32 + c * 2);
    return;
  }
  if (F::kScale == ScaleKind::kF32xS8) {
    float d;
    std::memcpy(&d, at.record + c * 4, 4);
    *scale = d * float(int8_t(p[c]));  // exact: 11 + 8 bits
  } else {
    *scale = f16_at(at.record + c * 2) * float(p[c]);
    *bias = f16_at(at.record + 32 + c * 2) * float(p[16 + c]);
  }
}

// 16 channels side by side, on the compilers' generic vectors.
typedef int16_t Shorts __attribute__((vector_size(32)));
typedef int32_t Ints __attribute__((vector_size(64)));

struct WeightGroup {
  Shorts code[32];  // zero point subtracted
  float scale[2][kTileRows], bias[2][kTileRows];
};
template <class F>
static void decode_group(const uint8_t* tile, int64_t cols, const CodeTable* table, int64_t group,
                         WeightGroup& w) {
  const GroupAddress at = group_address<F>(tile, cols, group);
  for (int k = 0; k < 32; ++k) {
    for (int c = 0; c < kTileRows; ++c)
      w.code[k][c] = int16_t(code_at<F>(at.planes, table, k, c) - F::kZeroPoint);
  }
  for (int s = 0; s < F::kScales; ++s) {
    for (int c = 0; c < kTileRows; ++c)
      scale_at<F>(at, s, c, &w.scale[s][c], &w.bias[s][c]);
  }
}

// Element k of channel c of a float tile, widened exactly; of E4M3 times its scale, rounded once.
template <class F>
INVAR_MEMBER float float_weight(const uint8_t* tile, int64_t k, int c) {
  const uint8_t* p = tile + F::column_at(k) + c * F::kElement;
  if (F::kDtype == Dtype::kE4M3) {
    float scale;
    std::memcpy(&scale, tile + F::scales_at(k) + c * 4, 4);
    return f16_to_f32(uint16_t((*p & 0x80) << 8 | (*p & 0x7F) << 7)) * scale;
  }
  if (F::kDtype == Dtype::kF32) {
    float x;
    std::memcpy(&x, p, 4);
    return x;
  }
  uint16_t h;
  std::memcpy(&h, p, 2);
  return F::kDtype == Dtype::kF16 ? f16_to_f32(h) : bf16_to_f32(h);
}

}  // namespace invar::INVAR_ISA
