#pragma once
// Linear layers, scalar set: the specification. Per tile, group of 32 columns and row: an exact integer dot
// per channel, then the float steps of docs/numerics.md, sections 2 and 3, literally. The innermost loops run
// over the 16 channels, which the compiler vectorizes; scalar-portable compiles fma_f32 to an exact form
// without hardware FMA.

#include "kernels/cpu/linear_group.h"

namespace invar::INVAR_ISA {

// Rows whose accumulators one tile pass holds. A multiple of nothing in particular: it cannot change a bit.
static constexpr int kMaxRows = 64, kRowStep = 8;

// acc[c] = fma(a[c], b, acc[c]) for the 16 channels. Without hardware FMA: the product of two floats is exact
// in double, and rounding the double sum to float again is the single rounding of the exact sum unless that
// double lies exactly between two floats (low 29 bits 100..0) or the result is subnormal. These rare cases
// take the exact form.
INVAR_MEMBER void fma_channels(const float* a, float b, float* acc) {
#if !INVAR_HARDWARE_FMA
  float result[kTileRows];
  uint32_t doubtful = 0;
  for (int c = 0; c < kTileRows; ++c) {
    const double sum = double(a[c]) * double(b) + double(acc[c]);
    result[c] = float(sum);
    doubtful |= uint32_t((uint32_t(bits_of(sum)) & 0x1FFFFFFFu) == 0x10000000u);
    doubtful |= uint32_t((bits_of(result[c]) & 0x7FFFFFFFu) - 1u < 0x00FFFFFFu);
  }
  if (!doubtful) [[likely]] {
    std::memcpy(acc, result, sizeof result);
    return;
  }
#endif
  for (int c = 0; c < kTileRows; ++c)
    acc[c] = fma_f32(a[c], b, acc[c]);
}

template <class F>
[[gnu::noinline]] static void dot_tile(const uint8_t* tile, int64_t cols, const CodeTable* table,
                                       const std::byte* rows, size_t stride, int count,
                                       float (*acc)[kTileRows]) {
  std::memset(acc, 0, sizeof *acc * count);
  for (int64_t g = 0; g < cols / 32; ++g) {
    WeightGroup w;
    decode_group<F>(tile, cols, table, g, w);
    for (int r = 0; r < count; ++r) {
      const QuantRow x = quant_row(rows + r * stride, cols);
      const float sa = x.scales[g];
      for (int s = 0; s < F::kScales; ++s) {
        Ints d = {};
        int32_t isum = 0;
        for (int k = s * F::kGroup; k < (s + 1) * F::kGroup; ++k) {
          const int16_t q = x.codes[g * 32 + k];
          isum += q;
          d += __builtin_convertvector(w.code[k] * q, Ints);  // |product| <= 255 * 127: exact in 16 bits
        }
        float t[kTileRows];
        for (int c = 0; c < kTileRows; ++c)
          t[c] = float(d[c]) * w.scale[s][c];
        fma_channels(t, sa, acc[r]);
        if (F::kBias) fma_channels(w.bias[s], sa * float(isum), acc[r]);
      }
    }
  }
}

template <class F>
[[gnu::noinline]] static void dot_float_tile(const uint8_t* tile, int64_t cols, const float* x,
                                             int64_t stride, int count, float (*acc)[kTileRows]) {
  float chain[kMaxRows][4][kTileRows];
  std::memset(chain, 0, sizeof *chain * count);
  for (int64_t k = 0; k < cols; ++k) {
    float w[kTileRows];
    for (int c = 0; c < kTileRows; ++c)
      w[c] = float_weight<F>(tile, k, c);
    for (int r = 0; r < count; ++r) {
      const float xk = x[r * stride + k];
      fma_channels(w, xk, chain[r][k % 4]);
    }
  }
  for (int r = 0; r < count; ++r) {
    for (int c = 0; c < kTileRows; ++c) {
      acc[r][c] = ((chain[r][0][c] + chain[r][1][c]) + (chain[r][2][c] + chain[r][3][c])) + 0.0f;
    }
  }
}

// Products and sums of 16 channels.
static int64_t dot_peak(int64_t rounds) {
  constexpr int kSums = 4;
  Ints sum[kSums] = {};
  for (int64_t round = 0; round < rounds; ++round) {
    for (Ints& s : sum)
      s = s * 3 + 1;
  }
  int32_t all = 0;
  for (const Ints& s : sum)
    all += s[0];
  return all == -1 ? 0 : rounds * kSums * kTileRows;  // or the sums would not be needed
}

}  // namespace invar::INVAR_ISA
