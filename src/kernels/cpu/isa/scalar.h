#pragma once
// The scalar set: lane-by-lane C++ on the compilers' generic vectors, so that it is at the same time the
// specification and fast enough to use. Compiled twice: with exact software FMA for any x86-64-v2
// ("scalar-portable"), and with hardware FMA ("scalar"). API and rules: isa.h.

#include "tensor/exact_math.h"

namespace invar::INVAR_ISA {

typedef float F32x16 __attribute__((vector_size(64)));
typedef double F64x16 __attribute__((vector_size(128)));
typedef int32_t I32x16 __attribute__((vector_size(64)));
typedef int64_t I64x16 __attribute__((vector_size(128)));
typedef uint32_t U32x16 __attribute__((vector_size(64)));
typedef uint64_t U64x8 __attribute__((vector_size(64)));
typedef uint16_t U16x16 __attribute__((vector_size(32)));

struct Vf {
  F32x16 v;
};
struct Vi {
  I32x16 v;
};
struct Mask {
  I32x16 v;
};  // -1 or 0

struct Vd {
  F64x16 v;
};

static constexpr int kVfRegisters = INVAR_HARDWARE_FMA ? 8 : 4;

INVAR_INLINE Vf set1(float x) {
  return {F32x16{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}};
}
INVAR_INLINE Vi set1_i(int32_t x) {
  return {I32x16{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}};
}
INVAR_INLINE Vi lane_ids() {
  return {I32x16{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
}

INVAR_INLINE Vi as_int(Vf a) {
  return {(I32x16)a.v};
}
INVAR_INLINE Vf as_float(Vi a) {
  return {(F32x16)a.v};
}
INVAR_INLINE Vf to_float(Vi a) {
  return {__builtin_convertvector(a.v, F32x16)};
}

INVAR_INLINE Vf load(const float* p) {
  Vf r;
  memcpy(&r.v, p, 64);
  return r;
}
INVAR_INLINE Vf load_n(const float* p, int n) {
  Vf r = set1(0.0f);
  memcpy(&r.v, p, size_t(n) * 4);
  return r;
}
INVAR_INLINE void store(float* p, Vf a) {
  memcpy(p, &a.v, 64);
}
INVAR_INLINE void store_n(float* p, Vf a, int n) {
  memcpy(p, &a.v, size_t(n) * 4);
}
INVAR_INLINE Vi load_i(const int32_t* p) {
  Vi r;
  memcpy(&r.v, p, 64);
  return r;
}
INVAR_INLINE void store_i(int32_t* p, Vi a) {
  memcpy(p, &a.v, 64);
}

INVAR_INLINE Vf add(Vf a, Vf b) {
  return {a.v + b.v};
}
INVAR_INLINE Vf sub(Vf a, Vf b) {
  return {a.v - b.v};
}
INVAR_INLINE Vf mul(Vf a, Vf b) {
  return {a.v * b.v};
}
INVAR_INLINE Vf div(Vf a, Vf b) {
  return {a.v / b.v};
}
INVAR_INLINE Vf sqrt(Vf a) {
  for (int l = 0; l < 16; l++)
    a.v[l] = __builtin_sqrtf(a.v[l]);
  return a;
}
// fma_f32 of tensor/exact_math.h in 16 lanes.
INVAR_INLINE Vf fma(Vf a, Vf b, Vf c) {
#if INVAR_HARDWARE_FMA && defined(__clang__)
  return {__builtin_elementwise_fma(a.v, b.v, c.v)};
#elif INVAR_HARDWARE_FMA
  Vf r;
  for (int l = 0; l < 16; l++)
    r.v[l] = __builtin_fmaf(a.v[l], b.v[l], c.v[l]);
  return r;
#else
  const F64x16 x = __builtin_convertvector(a.v, F64x16) * __builtin_convertvector(b.v, F64x16);
  const F64x16 y = __builtin_convertvector(c.v, F64x16);
  const F64x16 s = x + y, yy = s - x;
  const F64x16 lost = (x - (s - yy)) + (y - yy);
  const I64x16 u = (I64x16)s;
  const I64x16 up = (I64x16)(lost > 0.0), down = (I64x16)(lost < 0.0), positive = (I64x16)(s > 0.0);
  const I64x16 towards_zero = up ^ positive;   // -1: subtract, 0: add
  const I64x16 step = ((up | down) & ~u & 1);  // 1 where an inexact sum has an even last bit
  return {__builtin_convertvector((F64x16)(u + ((step ^ towards_zero) - towards_zero)), F32x16)};
#endif
}

INVAR_INLINE Vi add_i(Vi a, Vi b) {
  return {(I32x16)((U32x16)a.v + (U32x16)b.v)};
}
INVAR_INLINE Vi sub_i(Vi a, Vi b) {
  return {(I32x16)((U32x16)a.v - (U32x16)b.v)};
}
INVAR_INLINE Vi and_i(Vi a, Vi b) {
  return {a.v & b.v};
}
INVAR_INLINE Vi or_i(Vi a, Vi b) {
  return {a.v | b.v};
}
INVAR_INLINE Vi xor_i(Vi a, Vi b) {
  return {a.v ^ b.v};
}
INVAR_INLINE Vi mul_even(Vi a, Vi b) {
  return {(I32x16)(((U64x8)a.v & 0xFFFFFFFFu) * ((U64x8)b.v & 0xFFFFFFFFu))};
}
INVAR_INLINE Vi odd_to_even(Vi a) {
  return {(I32x16)((U64x8)a.v >> 32)};
}
INVAR_INLINE Vi interleave_even(Vi even, Vi odd) {
  return {(I32x16)(((U64x8)even.v & 0xFFFFFFFFu) | (U64x8)odd.v << 32)};
}
template <int n>
INVAR_INLINE Vi shl(Vi a) {
  return {(I32x16)((U32x16)a.v << n)};
}
template <int n>
INVAR_INLINE Vi shr(Vi a) {
  return {(I32x16)((U32x16)a.v >> n)};
}

INVAR_INLINE Mask lt(Vf a, Vf b) {
  return {(I32x16)(a.v < b.v)};
}
INVAR_INLINE Mask le(Vf a, Vf b) {
  return {(I32x16)(a.v <= b.v)};
}
INVAR_INLINE Mask gt(Vf a, Vf b) {
  return {(I32x16)(a.v > b.v)};
}
INVAR_INLINE Mask ge(Vf a, Vf b) {
  return {(I32x16)(a.v >= b.v)};
}
INVAR_INLINE Mask is_nan(Vf a) {
  return {(I32x16)(a.v != a.v)};
}
INVAR_INLINE Mask gt_i(Vi a, Vi b) {
  return {(I32x16)(a.v > b.v)};
}
INVAR_INLINE Mask ge_i(Vi a, Vi b) {
  return {(I32x16)(a.v >= b.v)};
}
INVAR_INLINE Mask eq_i(Vi a, Vi b) {
  return {(I32x16)(a.v == b.v)};
}
INVAR_INLINE Mask first_n(int n) {
  return gt_i(set1_i(n), lane_ids());
}
INVAR_INLINE Mask both(Mask a, Mask b) {
  return {a.v & b.v};
}
INVAR_INLINE Mask either(Mask a, Mask b) {
  return {a.v | b.v};
}
INVAR_INLINE Mask negate(Mask a) {
  return {~a.v};
}
INVAR_INLINE bool any(Mask a) {
  int32_t r = 0;
  for (int l = 0; l < 16; l++)
    r |= a.v[l];
  return r != 0;
}
INVAR_INLINE uint32_t lane_bits(Mask a) {
  uint32_t r = 0;
  for (int l = 0; l < 16; l++)
    r |= uint32_t(a.v[l] & 1) << l;
  return r;
}
INVAR_INLINE Vi select(Mask m, Vi a, Vi b) {
  return {(m.v & a.v) | (~m.v & b.v)};
}
INVAR_INLINE Vf select(Mask m, Vf a, Vf b) {
  return as_float(select(m, as_int(a), as_int(b)));
}

INVAR_INLINE Vf max(Vf a, Vf b) {
  return select(gt(a, b), a, b);
}
INVAR_INLINE Vf abs(Vf a) {
  return as_float(and_i(as_int(a), set1_i(0x7FFFFFFF)));
}
INVAR_INLINE Vf neg(Vf a) {
  return as_float(xor_i(as_int(a), set1_i(INT32_MIN)));
}
INVAR_INLINE Vf copysign(Vf a, Vf sign) {
  return as_float(or_i(and_i(as_int(a), set1_i(0x7FFFFFFF)), and_i(as_int(sign), set1_i(INT32_MIN))));
}

// tensor/float16.h in 16 lanes.
INVAR_INLINE Vf widen_f16(U16x16 h) {
  const Vi u = {(I32x16) __builtin_convertvector(h, U32x16)};
  const Vi magnitude = shl<13>(and_i(u, set1_i(0x7FFF)));
  const Vf normal = as_float(add_i(magnitude, set1_i(112 << 23)));
  const Vf subnormal = sub(as_float(add_i(magnitude, set1_i(113 << 23))), set1(0x1p-14f));
  const Vf special = as_float(or_i(magnitude, set1_i(0x7F800000)));
  Vf r = select(gt_i(set1_i(1 << 23), magnitude), subnormal, normal);
  r = select(ge_i(magnitude, set1_i(31 << 23)), special, r);
  return as_float(or_i(as_int(r), shl<16>(and_i(u, set1_i(0x8000)))));
}
INVAR_INLINE Vf widen_bf16(U16x16 h) {
  return as_float(shl<16>({(I32x16) __builtin_convertvector(h, U32x16)}));
}
INVAR_INLINE U16x16 load_u16(const uint16_t* p, int n) {
  U16x16 h = {};
  memcpy(&h, p, size_t(n) * 2);
  return h;
}
INVAR_INLINE Vf load_f16(const uint16_t* p) {
  return widen_f16(load_u16(p, 16));
}
INVAR_INLINE Vf load_bf16(const uint16_t* p) {
  return widen_bf16(load_u16(p, 16));
}
INVAR_INLINE Vf load_f16_n(const uint16_t* p, int n) {
  return widen_f16(load_u16(p, n));
}
INVAR_INLINE Vf load_bf16_n(const uint16_t* p, int n) {
  return widen_bf16(load_u16(p, n));
}

INVAR_INLINE void store_u16(uint16_t* p, Vi a) {
  const U16x16 h = __builtin_convertvector((U32x16)a.v, U16x16);
  memcpy(p, &h, 32);
}
INVAR_INLINE void store_f16(uint16_t* p, Vf x) {
  const Vi u = as_int(x), a = and_i(u, set1_i(0x7FFFFFFF)), sign = and_i(shr<16>(u), set1_i(0x8000));
  // Adding 1/2 aligns the last place to 2^-24, a subnormal's, and rounds to even.
  const Vi subnormal = sub_i(as_int(add(as_float(a), set1(0.5f))), set1_i(0x3F000000));
  const Vi rounded = add_i(add_i(a, set1_i(0xFFF)), and_i(shr<13>(a), set1_i(1)));
  const Vi normal = shr<13>(sub_i(rounded, set1_i(0x38000000)));
  Vi r = select(gt_i(set1_i(0x38800000), a), subnormal, normal);
  r = select(ge_i(a, set1_i(0x477FF000)), set1_i(0x7C00), r);
  r = select(gt_i(a, set1_i(0x7F800000)), set1_i(0x7E00), r);
  store_u16(p, or_i(sign, r));
}
INVAR_INLINE void store_bf16(uint16_t* p, Vf x) {
  const Vi u = as_int(x);
  const Vi rounded = shr<16>(add_i(add_i(u, set1_i(0x7FFF)), and_i(shr<16>(u), set1_i(1))));
  const Vi quiet = or_i(shr<16>(u), set1_i(0x40));
  store_u16(p, select(is_nan(x), quiet, rounded));
}

INVAR_INLINE Vd set1_d(double x) {
  return {F64x16{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}};
}
INVAR_INLINE Vd to_double(Vf a) {
  return {__builtin_convertvector(a.v, F64x16)};
}
INVAR_INLINE Vd add(Vd a, Vd b) {
  return {a.v + b.v};
}
INVAR_INLINE Vd sub(Vd a, Vd b) {
  return {a.v - b.v};
}
INVAR_INLINE Vd mul(Vd a, Vd b) {
  return {a.v * b.v};
}
INVAR_INLINE double reduce_add(Vd a) {
  for (int width = 8; width > 0; width /= 2)
    for (int l = 0; l < width; l++)
      a.v[l] = a.v[l] + a.v[l + width];
  return a.v[0];
}

INVAR_INLINE float reduce_add(Vf a) {
  float s[16];
  store(s, a);
  for (int w = 8; w >= 1; w /= 2) {
    for (int l = 0; l < w; l++)
      s[l] = s[l] + s[l + w];
  }
  return s[0];
}
INVAR_INLINE float reduce_max(Vf a) {
  float s[16];
  store(s, a);
  for (int w = 8; w >= 1; w /= 2) {
    for (int l = 0; l < w; l++)
      s[l] = s[l] > s[l + w] ? s[l] : s[l + w];
  }
  return s[0];
}
INVAR_INLINE int32_t reduce_max_i(Vi a) {
  int32_t s[16];
  store_i(s, a);
  for (int w = 8; w >= 1; w /= 2) {
    for (int l = 0; l < w; l++)
      s[l] = s[l] > s[l + w] ? s[l] : s[l + w];
  }
  return s[0];
}

}  // namespace invar::INVAR_ISA
