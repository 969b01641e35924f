#pragma once
// fp16 and bf16 scalars: exact widening, and narrowing by round to nearest even. Plain integer code with
// internal linkage, the same bits on every machine and safe to include in files compiled for one instruction
// set.

#include <cstdint>
#include <cstring>

namespace invar {

static inline uint32_t float_bits(float x) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  return u;
}
static inline float bits_float(uint32_t u) {
  float x;
  std::memcpy(&x, &u, 4);
  return x;
}

static inline float f16_to_f32(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000) << 16;
  const uint32_t exponent = (h >> 10) & 31, mantissa = h & 1023;
  if (exponent == 31) return bits_float(sign | 0x7F800000 | mantissa << 13);
  if (exponent != 0) return bits_float(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = float(mantissa) * 0x1p-24f;  // exact: a subnormal is mantissa * 2^-24
  return bits_float(sign | float_bits(magnitude));
}

// Round to nearest even; beyond the range gives infinity, NaN stays NaN.
static inline uint16_t f32_to_f16(float x) {
  const uint32_t u = float_bits(x), sign = (u >> 16) & 0x8000, a = u & 0x7FFFFFFF;
  if (a > 0x7F800000) return uint16_t(sign | 0x7E00);
  if (a >= 0x477FF000) return uint16_t(sign | 0x7C00);
  if (a < 0x38800000) {  // subnormal result: adding 2^-1 aligns the ulp to 2^-24 and rounds to even
    const float r = bits_float(a) + 0.5f;
    return uint16_t(sign | (float_bits(r) - 0x3F000000));
  }
  const uint32_t rounded = a + 0xFFF + ((a >> 13) & 1);
  return uint16_t(sign | ((rounded - 0x38000000) >> 13));
}

static inline float bf16_to_f32(uint16_t b) {
  return bits_float(uint32_t(b) << 16);
}

static inline uint16_t f32_to_bf16(float x) {
  const uint32_t u = float_bits(x);
  if ((u & 0x7FFFFFFF) > 0x7F800000) return uint16_t((u >> 16) | 0x40);
  return uint16_t((u + 0x7FFF + ((u >> 16) & 1)) >> 16);
}

}  // namespace invar
