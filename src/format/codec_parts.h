#pragma once
// What the codecs of several block types share: reading scales and nibbles. The pointers are restrict and the
// loops have no branches, so that the compiler turns them into vector code.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/float16.h"

namespace invar {

using Source = const uint8_t* __restrict;
using Codes = uint8_t* __restrict;

inline const uint8_t* bytes_of(const std::byte* block) {
  return reinterpret_cast<const uint8_t*>(block);
}
inline uint16_t u16_at(const uint8_t* p) {
  return static_cast<uint16_t>(p[0] | p[1] << 8);
}
inline uint32_t u32_at(const uint8_t* p) {
  return u16_at(p) | static_cast<uint32_t>(u16_at(p + 2)) << 16;
}
// The f16 at p, zero without its sign. That is all of the contract's flush of scales below 2^-40: an f16
// times an integer is 0 or at least 2^-24; nor can it reach the upper limit 2^64.
inline uint16_t scale_at(const uint8_t* p) {
  const uint16_t h = u16_at(p);
  return (h & 0x7FFF) == 0 ? 0 : h;
}
// K-quants subtract their minimum, the packed form adds its bias.
inline uint16_t negated_scale_at(const uint8_t* p) {
  const uint16_t h = scale_at(p);
  return h == 0 ? 0 : h ^ 0x8000;
}

// Bits of a bf16 within the contract's limits: +0 below 2^-40, infinity (a load error) from 2^64 on.
inline uint16_t bounded_bf16(uint16_t b) {
  const int magnitude = b & 0x7FFF;
  if (magnitude < (127 - 40) << 7) return 0;
  return magnitude >= (127 + 64) << 7 ? 0x7F80 : b;
}
// 2^(e - 127 + shift) as a bf16 within these limits; 255 is no number.
inline uint16_t power_of_two(int e, int shift) {
  if (e == 255) return 0x7F80;
  return e + shift < 1 ? 0 : bounded_bf16(static_cast<uint16_t>((e + shift) << 7));
}

// An unsigned E4M3 times 1/2 as a bf16; 0x7F, its NaN, counts as 0.
inline uint16_t half_of_e4m3(int x) {
  const int exponent = x >> 3 & 15, mantissa = x & 7;
  if (x == 0x7F) return 0;
  if (exponent == 0) return static_cast<uint16_t>(float_bits(static_cast<float>(mantissa) * 0x1p-10f) >> 16);
  return static_cast<uint16_t>((exponent - 8 + 127) << 7 | mantissa << 4);
}

// E4M3 without infinities; 0x7F and 0xFF are NaN.
inline float e4m3_to_f32(int x) {
  const int exponent = x >> 3 & 15, mantissa = x & 7;
  if ((x & 0x7F) == 0x7F) return bits_float(0x7FC00000);
  const float magnitude = exponent == 0
                              ? static_cast<float>(mantissa) * 0x1p-9f
                              : bits_float(static_cast<uint32_t>((exponent + 120) << 23 | mantissa << 20));
  return x >> 7 ? -magnitude : magnitude;
}

// n bytes -> n codes from the low nibbles, then n from the high ones.
template <int n>
void nibbles(Source p, Codes code) {
  for (int i = 0; i < n; ++i)
    code[i] = p[i] & 15;
  for (int i = 0; i < n; ++i)
    code[n + i] = p[i] >> 4;
}

// 128 two-bit codes from 32 bytes: bit pair 0 of all bytes, then pair 1, 2, 3.
inline void bit_pairs(Source p, Codes code) {
  for (int pair = 0; pair < 4; ++pair)
    for (int i = 0; i < 32; ++i)
      code[32 * pair + i] = (p[i] >> (2 * pair)) & 3;
}

}  // namespace invar
