#pragma once
// Linear layers over packed weights: which rows and tiles meet, and what happens to a finished accumulator.
// The dot products of one tile come from linear_dot_{scalar,avx2,avx512}.h. Blocks of rows are cut to stay in
// the L2 cache; the cut cannot change a bit, because a row's accumulators depend on that row and the weights
// alone.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/linear_group.h"
#include "kernels/cpu/quantize-inl.h"
#include "kernels/kernel_table.h"

#if INVAR_ISA_AVX512
#include "kernels/cpu/linear_dot_avx512.h"
#elif INVAR_ISA_AVX2
#include "kernels/cpu/linear_dot_avx2.h"
#else
#include "kernels/cpu/linear_dot_scalar.h"
#endif

namespace invar::INVAR_ISA {

// Activations of one block of rows: about this much of the L2 cache.
static constexpr int64_t kRowBlockBytes = 256 * 1024;

// y = acc (+ bias), or y = y + (acc + bias), for the first `channels` of a tile.
INVAR_MEMBER void store_channels(const float* acc, int channels, const float* bias, bool add, float* y) {
  for (int c = 0; c < channels; ++c) {
    const float v = bias ? acc[c] + bias[c] : acc[c];
    y[c] = add ? y[c] + v : v;
  }
}
static void store_tile(const float (*acc)[kTileRows], int rows, int channels, int64_t first_channel,
                       const LinearOutput& out, int64_t first_row) {
  const float* bias = out.bias ? out.bias + first_channel : nullptr;
  for (int r = 0; r < rows; ++r) {
    float* y = out.y + (first_row + r) * out.y_stride + first_channel;
    if (channels == kTileRows) {
      store_channels(acc[r], kTileRows, bias, out.add_to_y, y);
    } else {
      store_channels(acc[r], channels, bias, out.add_to_y, y);
    }
  }
}

// acc = acc * factor per channel.
static void multiply_factors(const uint8_t* factors, int rows, float (*acc)[kTileRows]) {
  float f[kTileRows];
  std::memcpy(f, factors, sizeof f);
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < kTileRows; ++c)
      acc[r][c] *= f[c];
  }
}

template <class F>
static void linear_form(const PackedMatrix& w, int64_t tile_begin, int64_t tile_end, const LinearInput& in,
                        const LinearOutput& out) {
  constexpr bool kFloat = requires { F::kDtype; };
  alignas(64) float acc[kMaxRows][kTileRows];
  const int64_t tile_size = F::tile_size(w.cols) + factor_bytes(*w.form);
  const auto* tiles = reinterpret_cast<const uint8_t*>(w.data);
  const int64_t row_bytes = kFloat ? w.cols * 4 : w.cols + w.cols / 8 * 3;
  int64_t block = kRowBlockBytes / row_bytes / kRowStep * kRowStep;
  block = block < 2 * kRowStep ? 2 * kRowStep : block > kMaxRows ? kMaxRows : block;
  for (int64_t row = 0; row < in.rows; row += block) {
    const int rows = int(in.rows - row < block ? in.rows - row : block);
    for (int64_t t = tile_begin; t < tile_end; ++t) {
      const uint8_t* tile = tiles + t * tile_size;
      if constexpr (kFloat) {
        dot_float_tile<F>(tile, w.cols, in.x + row * in.x_stride, in.x_stride, rows, acc);
      } else {
        dot_tile<F>(tile, w.cols, w.form->table, in.q + row * in.q_stride, in.q_stride, rows, acc);
      }
      if (w.form->factors) multiply_factors(tile + F::tile_size(w.cols), rows, acc);
      const int64_t channel = t * kTileRows;
      const int channels = int(w.rows - channel < kTileRows ? w.rows - channel : kTileRows);
      store_tile(acc, rows, channels, channel, out, row);
    }
  }
}

static void linear(const PackedMatrix& w, int64_t tile_begin, int64_t tile_end, const LinearInput& in,
                   const LinearOutput& out) {
  with_form(*w.form, [&](auto form) { linear_form<decltype(form)>(w, tile_begin, tile_end, in, out); });
}

static void unpack_row(const PackedMatrix& w, int64_t row, float* out) {
  with_form(*w.form, [&](auto form) {
    using F = decltype(form);
    const int64_t tile_size = F::tile_size(w.cols) + factor_bytes(*w.form);
    const auto* tile = reinterpret_cast<const uint8_t*>(w.data) + row / kTileRows * tile_size;
    const int c = int(row % kTileRows);
    float factor = 1.0f;
    if (w.form->factors) std::memcpy(&factor, tile + F::tile_size(w.cols) + 4 * c, 4);
    const uint8_t* columns = nullptr;
    if (w.form->gathered)
      columns = reinterpret_cast<const uint8_t*>(w.data) + (w.rows + kTileRows - 1) / kTileRows * tile_size;
    if constexpr (requires { F::kDtype; }) {
      for (int64_t k = 0; k < w.cols; ++k)
        out[k] = float_weight<F>(tile, k, c);
    } else {
      for (int64_t g = 0; g < w.cols / 32; ++g) {
        const GroupAddress at = group_address<F>(tile, w.cols, g);
        for (int k = 0; k < 32; ++k) {
          float scale, bias;
          scale_at<F>(at, k / F::kGroup, c, &scale, &bias);
          int32_t column = int32_t(g * 32 + k);
          if (columns != nullptr) std::memcpy(&column, columns + 4 * column, 4);
          const int code = code_at<F>(at.planes, w.form->table, k, c) - F::kZeroPoint;
          out[column] = fma_f32(scale, float(code), bias) * factor;
        }
      }
    }
  });
}

}  // namespace invar::INVAR_ISA
