#pragma once
// AVX-512 (F, BW, VL, DQ, VNNI): a Vf is one zmm register. API and rules: isa.h.
// With INVAR_SIMDE the same source runs over SIMDe on any CPU; only the tests build that.

#if defined(INVAR_SIMDE)
#include "kernels/cpu/isa/avx512_simde.h"
#else
#include <immintrin.h>
#endif

#define INVAR_ISA_AVX512 1  // picks linear_dot_avx512.h

namespace invar::INVAR_ISA {

struct Vf {
  __m512 v;
};
struct Vi {
  __m512i v;
};
struct Mask {
  __mmask16 v;
};

struct Vd {
  __m512d a, b;  // lanes 0..7, 8..15
};

static constexpr int kVfRegisters = 32;

INVAR_INLINE Vf set1(float x) {
  return {_mm512_set1_ps(x)};
}
INVAR_INLINE Vi set1_i(int32_t x) {
  return {_mm512_set1_epi32(x)};
}
INVAR_INLINE Vi lane_ids() {
  return {_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
}

INVAR_INLINE Vi as_int(Vf x) {
  return {_mm512_castps_si512(x.v)};
}
INVAR_INLINE Vf as_float(Vi x) {
  return {_mm512_castsi512_ps(x.v)};
}
INVAR_INLINE Vf to_float(Vi x) {
  return {_mm512_cvtepi32_ps(x.v)};
}

INVAR_INLINE Mask gt_i(Vi x, Vi y) {
  return {_mm512_cmpgt_epi32_mask(x.v, y.v)};
}
INVAR_INLINE Mask eq_i(Vi x, Vi y) {
  return {_mm512_cmpeq_epi32_mask(x.v, y.v)};
}
INVAR_INLINE Mask first_n(int n) {
  return {(__mmask16)((1u << n) - 1)};
}
INVAR_INLINE Mask both(Mask x, Mask y) {
  return {(__mmask16)(x.v & y.v)};
}
INVAR_INLINE Mask either(Mask x, Mask y) {
  return {(__mmask16)(x.v | y.v)};
}
INVAR_INLINE Mask negate(Mask x) {
  return {(__mmask16)~x.v};
}
INVAR_INLINE Mask ge_i(Vi x, Vi y) {
  return negate(gt_i(y, x));
}
INVAR_INLINE bool any(Mask x) {
  return x.v != 0;
}
INVAR_INLINE uint32_t lane_bits(Mask x) {
  return x.v;
}

INVAR_INLINE Vf load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
INVAR_INLINE Vf load_n(const float* p, int n) {
  return {_mm512_maskz_loadu_ps(first_n(n).v, p)};
}
INVAR_INLINE void store(float* p, Vf x) {
  _mm512_storeu_ps(p, x.v);
}
INVAR_INLINE void store_n(float* p, Vf x, int n) {
  _mm512_mask_storeu_ps(p, first_n(n).v, x.v);
}
INVAR_INLINE Vi load_i(const int32_t* p) {
  return {_mm512_loadu_si512(p)};
}
INVAR_INLINE void store_i(int32_t* p, Vi x) {
  _mm512_storeu_si512(p, x.v);
}

INVAR_INLINE Vf add(Vf x, Vf y) {
  return {_mm512_add_ps(x.v, y.v)};
}
INVAR_INLINE Vf sub(Vf x, Vf y) {
  return {_mm512_sub_ps(x.v, y.v)};
}
INVAR_INLINE Vf mul(Vf x, Vf y) {
  return {_mm512_mul_ps(x.v, y.v)};
}
INVAR_INLINE Vf div(Vf x, Vf y) {
  return {_mm512_div_ps(x.v, y.v)};
}
INVAR_INLINE Vf sqrt(Vf x) {
  return {_mm512_sqrt_ps(x.v)};
}
INVAR_INLINE Vf fma(Vf x, Vf y, Vf z) {
  return {_mm512_fmadd_ps(x.v, y.v, z.v)};
}

INVAR_INLINE Vi add_i(Vi x, Vi y) {
  return {_mm512_add_epi32(x.v, y.v)};
}
INVAR_INLINE Vi sub_i(Vi x, Vi y) {
  return {_mm512_sub_epi32(x.v, y.v)};
}
INVAR_INLINE Vi and_i(Vi x, Vi y) {
  return {_mm512_and_si512(x.v, y.v)};
}
INVAR_INLINE Vi or_i(Vi x, Vi y) {
  return {_mm512_or_si512(x.v, y.v)};
}
INVAR_INLINE Vi xor_i(Vi x, Vi y) {
  return {_mm512_xor_si512(x.v, y.v)};
}
template <int n>
INVAR_INLINE Vi shl(Vi x) {
  return {_mm512_slli_epi32(x.v, n)};
}
template <int n>
INVAR_INLINE Vi shr(Vi x) {
  return {_mm512_srli_epi32(x.v, n)};
}

INVAR_INLINE Vi mul_even(Vi x, Vi y) {
  return {_mm512_mul_epu32(x.v, y.v)};
}
INVAR_INLINE Vi odd_to_even(Vi x) {
  return {_mm512_srli_epi64(x.v, 32)};
}
INVAR_INLINE Vi interleave_even(Vi even, Vi odd) {
  return {_mm512_mask_blend_epi32(0xAAAA, even.v, _mm512_slli_epi64(odd.v, 32))};
}

INVAR_INLINE Mask lt(Vf x, Vf y) {
  return {_mm512_cmp_ps_mask(x.v, y.v, _CMP_LT_OQ)};
}
INVAR_INLINE Mask le(Vf x, Vf y) {
  return {_mm512_cmp_ps_mask(x.v, y.v, _CMP_LE_OQ)};
}
INVAR_INLINE Mask gt(Vf x, Vf y) {
  return {_mm512_cmp_ps_mask(x.v, y.v, _CMP_GT_OQ)};
}
INVAR_INLINE Mask ge(Vf x, Vf y) {
  return {_mm512_cmp_ps_mask(x.v, y.v, _CMP_GE_OQ)};
}
INVAR_INLINE Mask is_nan(Vf x) {
  return {_mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q)};
}
INVAR_INLINE Vf select(Mask m, Vf x, Vf y) {
  return {_mm512_mask_blend_ps(m.v, y.v, x.v)};
}
INVAR_INLINE Vi select(Mask m, Vi x, Vi y) {
  return {_mm512_mask_blend_epi32(m.v, y.v, x.v)};
}

#if defined(INVAR_SIMDE)
INVAR_INLINE Vf max(Vf x, Vf y) {
  return select(gt(x, y), x, y);
}
#else
INVAR_INLINE Vf max(Vf x, Vf y) {
  return {_mm512_max_ps(x.v, y.v)};
}
#endif
INVAR_INLINE Vf abs(Vf x) {
  return as_float(and_i(as_int(x), set1_i(0x7FFFFFFF)));
}
INVAR_INLINE Vf neg(Vf x) {
  return as_float(xor_i(as_int(x), set1_i(INT32_MIN)));
}
INVAR_INLINE Vf copysign(Vf x, Vf sign) {
  return as_float(or_i(and_i(as_int(x), set1_i(0x7FFFFFFF)), and_i(as_int(sign), set1_i(INT32_MIN))));
}

INVAR_INLINE Vf load_f16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p))};
}
INVAR_INLINE Vf load_bf16(const uint16_t* p) {
  return as_float(shl<16>({_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p))}));
}
INVAR_INLINE Vf load_f16_n(const uint16_t* p, int n) {
  uint16_t t[16] = {};
  memcpy(t, p, size_t(n) * 2);
  return load_f16(t);
}
INVAR_INLINE Vf load_bf16_n(const uint16_t* p, int n) {
  uint16_t t[16] = {};
  memcpy(t, p, size_t(n) * 2);
  return load_bf16(t);
}
INVAR_INLINE void store_f16(uint16_t* p, Vf x) {
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT));
}
INVAR_INLINE void store_bf16(uint16_t* p, Vf x) {
  const Vi u = as_int(x);
  const Vi rounded = shr<16>(add_i(add_i(u, set1_i(0x7FFF)), and_i(shr<16>(u), set1_i(1))));
  const Vi r = select(is_nan(x), or_i(shr<16>(u), set1_i(0x40)), rounded);
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi32_epi16(r.v));
}

INVAR_INLINE __m256 low_half(Vf x) {
  return _mm512_castps512_ps256(x.v);
}
INVAR_INLINE __m256 high_half(Vf x) {
  return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x.v), 1));
}
INVAR_INLINE Vd set1_d(double x) {
  return {_mm512_set1_pd(x), _mm512_set1_pd(x)};
}
INVAR_INLINE Vd to_double(Vf x) {
  const __m256 high = _mm512_extractf32x8_ps(x.v, 1);
  return {_mm512_cvtps_pd(_mm512_castps512_ps256(x.v)), _mm512_cvtps_pd(high)};
}
INVAR_INLINE Vd add(Vd x, Vd y) {
  return {_mm512_add_pd(x.a, y.a), _mm512_add_pd(x.b, y.b)};
}
INVAR_INLINE Vd sub(Vd x, Vd y) {
  return {_mm512_sub_pd(x.a, y.a), _mm512_sub_pd(x.b, y.b)};
}
INVAR_INLINE Vd mul(Vd x, Vd y) {
  return {_mm512_mul_pd(x.a, y.a), _mm512_mul_pd(x.b, y.b)};
}
INVAR_INLINE double reduce_add(Vd x) {
  const __m512d s8 = _mm512_add_pd(x.a, x.b);
  const __m256d s4 = _mm256_add_pd(_mm512_castpd512_pd256(s8), _mm512_extractf64x4_pd(s8, 1));
  const __m128d s2 = _mm_add_pd(_mm256_castpd256_pd128(s4), _mm256_extractf128_pd(s4, 1));
  return _mm_cvtsd_f64(_mm_add_sd(s2, _mm_unpackhi_pd(s2, s2)));
}

INVAR_INLINE float reduce_add(Vf x) {
  const __m256 s8 = _mm256_add_ps(low_half(x), high_half(x));
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
INVAR_INLINE float reduce_max(Vf x) {
  const __m256 s8 = _mm256_max_ps(low_half(x), high_half(x));
  const __m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_max_ss(s2, _mm_movehdup_ps(s2)));
}
INVAR_INLINE int32_t reduce_max_i(Vi x) {
  const __m256i s8 = _mm256_max_epi32(_mm512_castsi512_si256(x.v), _mm512_extracti64x4_epi64(x.v, 1));
  const __m128i s4 = _mm_max_epi32(_mm256_castsi256_si128(s8), _mm256_extracti128_si256(s8, 1));
  const __m128i s2 = _mm_max_epi32(s4, _mm_shuffle_epi32(s4, 0x4E));
  return _mm_cvtsi128_si32(_mm_max_epi32(s2, _mm_shuffle_epi32(s2, 0xB1)));
}

}  // namespace invar::INVAR_ISA
