#pragma once
// Activations of quantized linear layers (docs/numerics.md, section 2): one row of floats becomes int8 codes
// with one scale per 32. Plain loops that the compiler vectorizes for each set; a row's bits depend on that
// row alone. Layout of the result: kernel_table.h, quantized_row_bytes.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/exact_math.h"

namespace invar::INVAR_ISA {

// Below this maximum a group counts as zero; it keeps 127 / max and all scales far from overflow and
// subnormals.
static constexpr float kQuantizeMin = 0x1p-48f;

static void quantize_row(const float* x, int64_t cols, std::byte* out, uint8_t* fault) {
  const int64_t groups = cols / 32;
  auto* codes = reinterpret_cast<int8_t*>(out);
  auto* scales = reinterpret_cast<float*>(out + cols);
  auto* scaled_sums = scales + groups;
  auto* sums = reinterpret_cast<int16_t*>(scaled_sums + groups);
  bool finite = true;
  for (int64_t g = 0; g < groups; ++g, x += 32, codes += 32, sums += 2) {
    uint32_t bits[32], largest = 0;
    std::memcpy(bits, x, sizeof bits);
    for (int i = 0; i < 32; ++i) {
      const uint32_t magnitude = bits[i] & 0x7FFFFFFFu;
      largest = magnitude > largest ? magnitude : largest;
    }
    const float a = f32_of(largest);
    if (largest >= 0x7F800000u || a < kQuantizeMin) {
      const bool bad = largest >= 0x7F800000u;
      finite = finite && !bad;
      std::memset(codes, 0, 32);
      sums[0] = sums[1] = 0;
      scales[g] = scaled_sums[g] = bad ? f32_of(0x7FC00000u) : 0.0f;
      continue;
    }
    const float inverse = 127.0f / a, scale = a / 127.0f;
    int32_t q[32];
    for (int i = 0; i < 32; ++i) {
      // Adding 1.5 * 2^23 leaves the nearest integer, ties to even, in the low bits.
      const float shifted = x[i] * inverse + 0x1.8p23f;
      q[i] = int32_t(bits_of(shifted)) - 0x4B400000;
    }
    for (int half = 0; half < 2; ++half) {
      int32_t sum = 0;
      for (int i = 16 * half; i < 16 * half + 16; ++i) {
        codes[i] = int8_t(q[i]);
        sum += q[i];
      }
      sums[half] = int16_t(sum);
    }
    scales[g] = scale;
    scaled_sums[g] = scale * float(sums[0] + sums[1]);
  }
  if (!finite) *fault = 1;
}

}  // namespace invar::INVAR_ISA
