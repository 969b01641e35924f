#include "tensor/float16.h"

#include <gtest/gtest.h>
#include <immintrin.h>

#include <cmath>
#include <vector>

namespace invar {
namespace {

__attribute__((target("f16c"))) float widen_by_cpu(uint16_t h) {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}
__attribute__((target("f16c"))) uint16_t narrow_by_cpu(float x) {
  return uint16_t(_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT)));
}

// The value of a half by its definition, for machines without the conversion instructions.
float half_value(uint16_t h) {
  const int exponent = (h >> 10) & 31, mantissa = h & 1023;
  const double magnitude = exponent == 31  ? (mantissa ? NAN : HUGE_VAL)
                           : exponent == 0 ? std::ldexp(mantissa, -24)
                                           : std::ldexp(1024 + mantissa, exponent - 25);
  return float(h & 0x8000 ? -magnitude : magnitude);
}

TEST(Float16, WidensEveryHalfExactly) {
  const bool cpu = __builtin_cpu_supports("f16c");
  for (uint32_t h = 0; h <= 0xFFFF; ++h) {
    const float got = f16_to_f32(uint16_t(h)), want = half_value(uint16_t(h));
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << h;
      continue;
    }
    ASSERT_EQ(float_bits(got), float_bits(want)) << h;
    if (cpu) ASSERT_EQ(float_bits(got), float_bits(widen_by_cpu(uint16_t(h)))) << h;
  }
}

TEST(Float16, NarrowingUndoesWidening) {
  for (uint32_t h = 0; h <= 0xFFFF; ++h) {
    const float x = f16_to_f32(uint16_t(h));
    if (!std::isnan(x)) ASSERT_EQ(f32_to_f16(x), h);
  }
}

// All signs and exponents with every pattern of the kept mantissa bits and the rounding positions around a
// tie.
TEST(Float16, NarrowsAsTheCpuDoesAtEveryExponentAndTie) {
  if (!__builtin_cpu_supports("f16c")) GTEST_SKIP() << "not run: this CPU has no F16C";
  const uint32_t tails[] = {0, 1, 2, 0x7FF, 0x800, 0xFFE, 0xFFF, 0x1000, 0x1001, 0x1800, 0x1FFE, 0x1FFF};
  for (uint32_t top = 0; top < 1u << 19; ++top) {
    for (const uint32_t tail : tails) {
      const float x = bits_float(top << 13 | tail);
      if (std::isnan(x)) {
        ASSERT_TRUE(std::isnan(f16_to_f32(f32_to_f16(x))));
        continue;
      }
      ASSERT_EQ(f32_to_f16(x), narrow_by_cpu(x)) << std::hexfloat << x;
    }
  }
  // Subnormal halves round at other positions.
  for (uint32_t u = float_bits(0x1p-26f); u < float_bits(0x1p-13f); u += 61) {
    ASSERT_EQ(f32_to_f16(bits_float(u)), narrow_by_cpu(bits_float(u))) << u;
  }
}

TEST(Float16, Bf16WidensExactlyAndNarrowsToNearestEven) {
  for (uint32_t b = 0; b <= 0xFFFF; ++b) {
    const float x = bf16_to_f32(uint16_t(b));
    if (std::isnan(x)) {
      ASSERT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(x))));
      continue;
    }
    ASSERT_EQ(f32_to_bf16(x), b);
    if (std::isinf(x)) continue;
    const uint16_t up = uint16_t(b + 1), even = b & 1 ? up : uint16_t(b);
    ASSERT_EQ(f32_to_bf16(bits_float(b << 16 | 0x7FFF)), b);
    ASSERT_EQ(f32_to_bf16(bits_float(b << 16 | 0x8000)), even);
    ASSERT_EQ(f32_to_bf16(bits_float(b << 16 | 0x8001)), up);
  }
}

}  // namespace
}  // namespace invar
