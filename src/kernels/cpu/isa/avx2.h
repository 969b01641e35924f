#pragma once
// AVX2 + FMA + F16C: a Vf is two ymm registers, a holds lanes 0..7, b lanes 8..15. API and rules: isa.h.

#include <immintrin.h>

#define INVAR_ISA_AVX2 1  // picks linear_dot_avx2.h

namespace invar::INVAR_ISA {

struct Vf {
  __m256 a, b;
};
struct Vi {
  __m256i a, b;
};
struct Mask {
  __m256 a, b;
};

struct Vd {
  __m256d v[4];  // lanes 0..3, 4..7, 8..11, 12..15
};

static constexpr int kVfRegisters = 8;

INVAR_INLINE Vf set1(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
INVAR_INLINE Vi set1_i(int32_t x) {
  return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
INVAR_INLINE Vi lane_ids() {
  return {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)};
}

INVAR_INLINE Vi as_int(Vf x) {
  return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)};
}
INVAR_INLINE Vf as_float(Vi x) {
  return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)};
}
INVAR_INLINE Vf to_float(Vi x) {
  return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)};
}

INVAR_INLINE Mask gt_i(Vi x, Vi y) {
  return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(x.a, y.a)),
          _mm256_castsi256_ps(_mm256_cmpgt_epi32(x.b, y.b))};
}
INVAR_INLINE Mask eq_i(Vi x, Vi y) {
  return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(x.a, y.a)),
          _mm256_castsi256_ps(_mm256_cmpeq_epi32(x.b, y.b))};
}
INVAR_INLINE Mask first_n(int n) {
  return gt_i(set1_i(n), lane_ids());
}
INVAR_INLINE Mask both(Mask x, Mask y) {
  return {_mm256_and_ps(x.a, y.a), _mm256_and_ps(x.b, y.b)};
}
INVAR_INLINE Mask either(Mask x, Mask y) {
  return {_mm256_or_ps(x.a, y.a), _mm256_or_ps(x.b, y.b)};
}
INVAR_INLINE Mask negate(Mask x) {
  const __m256 ones = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
  return {_mm256_xor_ps(x.a, ones), _mm256_xor_ps(x.b, ones)};
}
INVAR_INLINE Mask ge_i(Vi x, Vi y) {
  return negate(gt_i(y, x));
}
INVAR_INLINE bool any(Mask x) {
  return _mm256_movemask_ps(_mm256_or_ps(x.a, x.b)) != 0;
}
INVAR_INLINE uint32_t lane_bits(Mask x) {
  return uint32_t(_mm256_movemask_ps(x.a)) | uint32_t(_mm256_movemask_ps(x.b)) << 8;
}

INVAR_INLINE Vf load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
INVAR_INLINE Vf load_n(const float* p, int n) {
  const Mask m = first_n(n);
  Vf r;
  r.a = _mm256_maskload_ps(p, _mm256_castps_si256(m.a));
  r.b = n > 8 ? _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.b)) : _mm256_setzero_ps();
  return r;
}
INVAR_INLINE void store(float* p, Vf x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
INVAR_INLINE void store_n(float* p, Vf x, int n) {
  const Mask m = first_n(n);
  _mm256_maskstore_ps(p, _mm256_castps_si256(m.a), x.a);
  if (n > 8) _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.b), x.b);
}
INVAR_INLINE Vi load_i(const int32_t* p) {
  return {_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)(p + 8))};
}
INVAR_INLINE void store_i(int32_t* p, Vi x) {
  _mm256_storeu_si256((__m256i*)p, x.a);
  _mm256_storeu_si256((__m256i*)(p + 8), x.b);
}

INVAR_INLINE Vf add(Vf x, Vf y) {
  return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
INVAR_INLINE Vf sub(Vf x, Vf y) {
  return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
INVAR_INLINE Vf mul(Vf x, Vf y) {
  return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
INVAR_INLINE Vf div(Vf x, Vf y) {
  return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
INVAR_INLINE Vf sqrt(Vf x) {
  return {_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)};
}
INVAR_INLINE Vf fma(Vf x, Vf y, Vf z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
INVAR_INLINE Vf max(Vf x, Vf y) {
  return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}

INVAR_INLINE Vi add_i(Vi x, Vi y) {
  return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
INVAR_INLINE Vi sub_i(Vi x, Vi y) {
  return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}
INVAR_INLINE Vi and_i(Vi x, Vi y) {
  return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)};
}
INVAR_INLINE Vi or_i(Vi x, Vi y) {
  return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)};
}
INVAR_INLINE Vi xor_i(Vi x, Vi y) {
  return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)};
}
template <int n>
INVAR_INLINE Vi shl(Vi x) {
  return {_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)};
}
template <int n>
INVAR_INLINE Vi shr(Vi x) {
  return {_mm256_srli_epi32(x.a, n), _mm256_srli_epi32(x.b, n)};
}

INVAR_INLINE Vi mul_even(Vi x, Vi y) {
  return {_mm256_mul_epu32(x.a, y.a), _mm256_mul_epu32(x.b, y.b)};
}
INVAR_INLINE Vi odd_to_even(Vi x) {
  return {_mm256_srli_epi64(x.a, 32), _mm256_srli_epi64(x.b, 32)};
}
INVAR_INLINE Vi interleave_even(Vi even, Vi odd) {
  return {_mm256_blend_epi32(even.a, _mm256_slli_epi64(odd.a, 32), 0xAA),
          _mm256_blend_epi32(even.b, _mm256_slli_epi64(odd.b, 32), 0xAA)};
}

INVAR_INLINE Mask lt(Vf x, Vf y) {
  return {_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)};
}
INVAR_INLINE Mask le(Vf x, Vf y) {
  return {_mm256_cmp_ps(x.a, y.a, _CMP_LE_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LE_OQ)};
}
INVAR_INLINE Mask gt(Vf x, Vf y) {
  return {_mm256_cmp_ps(x.a, y.a, _CMP_GT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_GT_OQ)};
}
INVAR_INLINE Mask ge(Vf x, Vf y) {
  return {_mm256_cmp_ps(x.a, y.a, _CMP_GE_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_GE_OQ)};
}
INVAR_INLINE Mask is_nan(Vf x) {
  return {_mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q), _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q)};
}
INVAR_INLINE Vf select(Mask m, Vf x, Vf y) {
  return {_mm256_blendv_ps(y.a, x.a, m.a), _mm256_blendv_ps(y.b, x.b, m.b)};
}
INVAR_INLINE Vi select(Mask m, Vi x, Vi y) {
  return as_int(select(m, as_float(x), as_float(y)));
}

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
  return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)),
          _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8)))};
}
INVAR_INLINE Vf load_bf16(const uint16_t* p) {
  return as_float(shl<16>({_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)),
                           _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)(p + 8)))}));
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
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128((__m128i*)(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
INVAR_INLINE void store_bf16(uint16_t* p, Vf x) {
  const Vi u = as_int(x);
  const Vi rounded = shr<16>(add_i(add_i(u, set1_i(0x7FFF)), and_i(shr<16>(u), set1_i(1))));
  const Vi r = select(is_nan(x), or_i(shr<16>(u), set1_i(0x40)), rounded);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(r.a, r.b), 0xD8);
  _mm256_storeu_si256((__m256i*)p, packed);
}

INVAR_INLINE Vd set1_d(double x) {
  const __m256d v = _mm256_set1_pd(x);
  return {{v, v, v, v}};
}
INVAR_INLINE Vd to_double(Vf x) {
  return {{_mm256_cvtps_pd(_mm256_castps256_ps128(x.a)), _mm256_cvtps_pd(_mm256_extractf128_ps(x.a, 1)),
           _mm256_cvtps_pd(_mm256_castps256_ps128(x.b)), _mm256_cvtps_pd(_mm256_extractf128_ps(x.b, 1))}};
}
INVAR_INLINE Vd add(Vd x, Vd y) {
  return {{_mm256_add_pd(x.v[0], y.v[0]), _mm256_add_pd(x.v[1], y.v[1]), _mm256_add_pd(x.v[2], y.v[2]),
           _mm256_add_pd(x.v[3], y.v[3])}};
}
INVAR_INLINE Vd sub(Vd x, Vd y) {
  return {{_mm256_sub_pd(x.v[0], y.v[0]), _mm256_sub_pd(x.v[1], y.v[1]), _mm256_sub_pd(x.v[2], y.v[2]),
           _mm256_sub_pd(x.v[3], y.v[3])}};
}
INVAR_INLINE Vd mul(Vd x, Vd y) {
  return {{_mm256_mul_pd(x.v[0], y.v[0]), _mm256_mul_pd(x.v[1], y.v[1]), _mm256_mul_pd(x.v[2], y.v[2]),
           _mm256_mul_pd(x.v[3], y.v[3])}};
}
INVAR_INLINE double reduce_add(Vd x) {
  const __m256d s4 = _mm256_add_pd(_mm256_add_pd(x.v[0], x.v[2]), _mm256_add_pd(x.v[1], x.v[3]));
  const __m128d s2 = _mm_add_pd(_mm256_castpd256_pd128(s4), _mm256_extractf128_pd(s4, 1));
  return _mm_cvtsd_f64(_mm_add_sd(s2, _mm_unpackhi_pd(s2, s2)));
}

INVAR_INLINE float reduce_add(Vf x) {
  const __m256 s8 = _mm256_add_ps(x.a, x.b);
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
INVAR_INLINE float reduce_max(Vf x) {
  const __m256 s8 = _mm256_max_ps(x.a, x.b);
  const __m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_max_ss(s2, _mm_movehdup_ps(s2)));
}
INVAR_INLINE int32_t reduce_max_i(Vi x) {
  const __m256i s8 = _mm256_max_epi32(x.a, x.b);
  const __m128i s4 = _mm_max_epi32(_mm256_castsi256_si128(s8), _mm256_extracti128_si256(s8, 1));
  const __m128i s2 = _mm_max_epi32(s4, _mm_shuffle_epi32(s4, 0x4E));
  return _mm_cvtsi128_si32(_mm_max_epi32(s2, _mm_shuffle_epi32(s2, 0xB1)));
}

}  // namespace invar::INVAR_ISA
