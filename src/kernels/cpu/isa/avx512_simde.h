#pragma once
// AVX-512 intrinsics over SIMDe, for the test-only set "avx512-emulated". What the packaged SIMDe lacks is
// filled in. Everything below AVX-512 stays native, so that an FMA is one rounding here too.

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

namespace invar::INVAR_ISA::simde_rest {

union Parts {
  __m512 f;
  __m512i i;
  __m256 f8[2];
  __m256i i8[2];
  __m512d d;
  __m256d d4[2];
  float lane[16];
};

INVAR_INLINE __m512 cvtepi32_ps(__m512i x) {
  Parts p;
  p.i = x;
  for (int k = 0; k < 2; k++)
    p.f8[k] = _mm256_cvtepi32_ps(p.i8[k]);
  return p.f;
}
INVAR_INLINE __m512d cvtps_pd(__m256 x) {
  Parts p;
  p.d4[0] = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
  p.d4[1] = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
  return p.d;
}
INVAR_INLINE __m256 upper_half(__m512 x) {
  Parts p;
  p.f = x;
  return p.f8[1];
}
INVAR_INLINE __m512 maskz_loadu_ps(unsigned mask, const void* from) {
  Parts p;
  for (int l = 0; l < 16; l++)
    p.lane[l] = mask >> l & 1 ? ((const float*)from)[l] : 0.0f;
  return p.f;
}
INVAR_INLINE void mask_storeu_ps(void* to, unsigned mask, __m512 x) {
  Parts p;
  p.f = x;
  for (int l = 0; l < 16; l++) {
    if (mask >> l & 1) ((float*)to)[l] = p.lane[l];
  }
}
INVAR_INLINE __m512 cvtph_ps(__m256i h) {
  Parts p;
  p.f8[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(h));
  p.f8[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1));
  return p.f;
}
INVAR_INLINE __m256i cvtps_ph(__m512 x) {
  Parts p;
  p.f = x;
  return _mm256_set_m128i(_mm256_cvtps_ph(p.f8[1], _MM_FROUND_TO_NEAREST_INT),
                          _mm256_cvtps_ph(p.f8[0], _MM_FROUND_TO_NEAREST_INT));
}
INVAR_INLINE __m512i cvtepu16_epi32(__m256i h) {
  Parts p;
  p.i8[0] = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(h));
  p.i8[1] = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(h, 1));
  return p.i;
}
INVAR_INLINE __m256i cvtepi32_epi16(__m512i x) {
  Parts p;
  p.i = x;
  const __m256i low = _mm256_set1_epi32(0xFFFF);
  return _mm256_permute4x64_epi64(
      _mm256_packus_epi32(_mm256_and_si256(p.i8[0], low), _mm256_and_si256(p.i8[1], low)), 0xD8);
}

// Widening of 16 bytes, and shifts whose count is no literal.
INVAR_INLINE __m512i cvtepu8_epi32(__m128i b) {
  Parts p;
  p.i8[0] = _mm256_cvtepu8_epi32(b);
  p.i8[1] = _mm256_cvtepu8_epi32(_mm_srli_si128(b, 8));
  return p.i;
}
INVAR_INLINE __m512i cvtepi8_epi32(__m128i b) {
  Parts p;
  p.i8[0] = _mm256_cvtepi8_epi32(b);
  p.i8[1] = _mm256_cvtepi8_epi32(_mm_srli_si128(b, 8));
  return p.i;
}
INVAR_INLINE __m512i srli_epi16(__m512i x, int n) {
  Parts p;
  p.i = x;
  for (int k = 0; k < 2; k++)
    p.i8[k] = _mm256_srli_epi16(p.i8[k], n);
  return p.i;
}
INVAR_INLINE __m512i slli_epi16(__m512i x, int n) {
  Parts p;
  p.i = x;
  for (int k = 0; k < 2; k++)
    p.i8[k] = _mm256_slli_epi16(p.i8[k], n);
  return p.i;
}

// SIMDe's own forms of the dot products are exact, but their generic vectors take minutes to compile in
// unrolled loops.
static __attribute__((noinline)) __m512i dpbusd(__m512i sum, __m512i a, __m512i b) {
  Parts s, u, v;
  s.i = sum;
  u.i = a;
  v.i = b;
  for (int k = 0; k < 2; k++) {
    const __m256i even = _mm256_madd_epi16(_mm256_and_si256(u.i8[k], _mm256_set1_epi16(255)),
                                           _mm256_srai_epi16(_mm256_slli_epi16(v.i8[k], 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(u.i8[k], 8), _mm256_srai_epi16(v.i8[k], 8));
    s.i8[k] = _mm256_add_epi32(s.i8[k], _mm256_add_epi32(even, odd));
  }
  return s.i;
}
static __attribute__((noinline)) __m512i dpwssd(__m512i sum, __m512i a, __m512i b) {
  Parts s, u, v;
  s.i = sum;
  u.i = a;
  v.i = b;
  for (int k = 0; k < 2; k++)
    s.i8[k] = _mm256_add_epi32(s.i8[k], _mm256_madd_epi16(u.i8[k], v.i8[k]));
  return s.i;
}

}  // namespace invar::INVAR_ISA::simde_rest

#undef _mm512_cvtps_ph
#define _mm512_cvtepi32_ps(x) simde_rest::cvtepi32_ps(x)
#define _mm512_cvtps_pd(x) simde_rest::cvtps_pd(x)
#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps(x, k) simde_rest::upper_half(x)
#define _mm512_maskz_loadu_ps(m, p) simde_rest::maskz_loadu_ps(m, p)
#define _mm512_mask_storeu_ps(p, m, x) simde_rest::mask_storeu_ps(p, m, x)
#define _mm512_cvtph_ps(h) simde_rest::cvtph_ps(h)
#define _mm512_cvtps_ph(x, rounding) simde_rest::cvtps_ph(x)
#define _mm512_cvtepu16_epi32(h) simde_rest::cvtepu16_epi32(h)
#define _mm512_cvtepi32_epi16(x) simde_rest::cvtepi32_epi16(x)
#undef _mm512_srli_epi16
#undef _mm512_slli_epi16
#define _mm512_srli_epi16(x, n) simde_rest::srli_epi16(x, n)
#define _mm512_slli_epi16(x, n) simde_rest::slli_epi16(x, n)
#define _mm512_cvtepu8_epi32(b) simde_rest::cvtepu8_epi32(b)
#define _mm512_cvtepi8_epi32(b) simde_rest::cvtepi8_epi32(b)
#undef _mm512_dpbusd_epi32
#undef _mm512_dpwssd_epi32
#define _mm512_dpbusd_epi32(s, a, b) simde_rest::dpbusd(s, a, b)
#define _mm512_dpwssd_epi32(s, a, b) simde_rest::dpwssd(s, a, b)
