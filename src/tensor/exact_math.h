#pragma once
// The scalar definitions of docs/numerics.md, section 8: every function below is a fixed sequence of IEEE
// operations, so it has the same bits on every machine. Vector kernels must produce exactly these bits.
//
// Internal linkage and no library calls, so that a file compiled for one instruction set may include it.
// fma_f32 and fma_f64 are the hardware instruction where the compiler may use it, else inlined exact forms.
// Callers run with rounding to nearest even and without flush to zero (base/fp_environment.h); compile with
// -ffp-contract=off. f32 functions take any finite argument unless stated; infinities behave as limits, NaN
// gives NaN or is the caller's fault.

#include <cstdint>
#include <cstring>

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define INVAR_HARDWARE_FMA 1
#else
#define INVAR_HARDWARE_FMA 0
#endif

namespace invar {

static inline uint32_t bits_of(float x) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  return u;
}
static inline uint64_t bits_of(double x) {
  uint64_t u;
  std::memcpy(&u, &x, 8);
  return u;
}
static inline float f32_of(uint32_t u) {
  float x;
  std::memcpy(&x, &u, 4);
  return x;
}
static inline double f64_of(uint64_t u) {
  double x;
  std::memcpy(&x, &u, 8);
  return x;
}
static inline float abs_f32(float x) {
  return f32_of(bits_of(x) & 0x7FFFFFFFu);
}
static inline double abs_f64(double x) {
  return f64_of(bits_of(x) & 0x7FFFFFFFFFFFFFFFu);
}
static inline float copy_sign_f32(float magnitude, float sign) {
  return f32_of((bits_of(magnitude) & 0x7FFFFFFFu) | (bits_of(sign) & 0x80000000u));
}

// a + b rounded to odd: an inexact sum goes to the neighbour with an odd last bit, which keeps enough of what
// was lost for a second rounding to a narrower format to be the single rounding of the exact sum.
static inline double add_round_to_odd(double a, double b) {
  const double s = a + b, bb = s - a;
  const double lost = (a - (s - bb)) + (b - bb);  // exact (TwoSum); NaN when s is not finite
  const uint64_t u = bits_of(s);
  // Away from zero adds 1 to the bits, towards zero subtracts 1. An inexact s is not zero.
  const uint64_t away = uint64_t((lost > 0) == (s > 0)), inexact = uint64_t((lost > 0) | (lost < 0));
  const uint64_t step = (inexact & ~u & 1) * (2 * away - 1);
  return f64_of(u + step);
}

// The exact form without hardware: the product of two floats is exact in double, the sum is rounded to odd
// there. Right for all arguments, subnormal results, overflow and infinities included.
static inline float soft_fma_f32(float a, float b, float c) {
  return float(add_round_to_odd(double(a) * double(b), double(c)));
}

// After Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums" (IEEE Trans. Computers 57,
// 2008): the product as an exact pair (Dekker, Veltkamp splitting), two exact sums, the two small parts added
// with rounding to odd. Exact when a*b is 0 or 2^-960 <= |a*b| <= 2^1000, |a| and |b| <= 2^990, |c| <= 2^1000
// and the result is 0 or at least 2^-960: sections 4, 7 and 8 of the contract stay within 2^-500 .. 2^130,
// with two exceptions that do not matter: products of a tiny argument with itself that are added to something
// 2^100 times larger.
static inline double soft_fma_f64(double a, double b, double c) {
  constexpr double kSplit = 0x1p27 + 1;
  const double at = a * kSplit, ah = at - (at - a), al = a - ah;
  const double bt = b * kSplit, bh = bt - (bt - b), bl = b - bh;
  const double uh = a * b;
  const double ul = al * bl - (((uh - ah * bh) - al * bh) - ah * bl);
  const double th = c + ul, t1 = th - c, tl = (c - (th - t1)) + (ul - t1);
  const double vh = uh + th, v1 = vh - uh, vl = (uh - (vh - v1)) + (th - v1);
  const double result = vh + add_round_to_odd(tl, vl);
  // A zero result takes its sign, and a non-finite one its kind, from the plain operations (exact in these
  // cases).
  return result != 0 && abs_f64(result) <= 0x1.fffffffffffffp1023 ? result : uh + c;
}

static inline float fma_f32(float a, float b, float c) {
#if INVAR_HARDWARE_FMA
  return __builtin_fmaf(a, b, c);
#else
  return soft_fma_f32(a, b, c);
#endif
}

static inline double fma_f64(double a, double b, double c) {
#if INVAR_HARDWARE_FMA
  return __builtin_fma(a, b, c);
#else
  return soft_fma_f64(a, b, c);
#endif
}

// ---- float functions

// 0.866 ulp on [-87, 0). exp(0) = 1, below -87 +0, above 88 infinity.
static inline float exp_f32(float x) {
  if (x < -87.0f) return 0.0f;
  if (x > 88.0f) return f32_of(0x7F800000u);
  const float shifted = fma_f32(x, 0x1.715476p0f, 0x1.8p23f);  // its low bits are round(x / ln 2)
  const float j = shifted - 0x1.8p23f;
  float f = fma_f32(j, -0x1.62e400p-1f, x);  // ln 2 in two parts; j times the first is exact
  f = fma_f32(j, -0x1.7f7d1cp-20f, f);
  float p = 0x1.694000p-10f;
  p = fma_f32(p, f, 0x1.125edcp-7f);
  p = fma_f32(p, f, 0x1.555b5ap-5f);
  p = fma_f32(p, f, 0x1.555450p-3f);
  p = fma_f32(p, f, 0x1.fffff6p-2f);
  p = fma_f32(p, f, 1.0f);
  p = fma_f32(p, f, 1.0f);
  return f32_of(bits_of(p) + (bits_of(shifted) << 23));
}

// E of the contract: weights of softmax. Exactly +0 below -50, so that a masked slot and a skipped one agree.
static inline float exp_or_zero_f32(float x) {
  return x < -50.0f ? 0.0f : exp_f32(x);
}

// 2.40 ulp.
static inline float sigmoid_f32(float x) {
  const float e = exp_f32(-abs_f32(x));
  return (x >= 0 ? 1.0f : e) / (1.0f + e);
}

// 3.35 ulp for |x| <= 87; below -87 it is -0.
static inline float silu_f32(float x) {
  const float e = exp_f32(-abs_f32(x));
  return (x >= 0 ? x : x * e) / (1.0f + e);
}

// 1.51 ulp.
static inline float tanh_f32(float x) {
  if (abs_f32(x) > 0.55f) {
    const float e2 = exp_f32(-2.0f * abs_f32(x));
    return copy_sign_f32((1.0f - e2) / (1.0f + e2), x);
  }
  const float s = x * x;
  float r = -0x1.9b24c6p-8f;
  r = fma_f32(r, s, 0x1.593b1ep-6f);
  r = fma_f32(r, s, -0x1.b92844p-5f);
  r = fma_f32(r, s, 0x1.110d24p-3f);
  r = fma_f32(r, s, -0x1.55554ap-2f);
  r = r * s;
  return fma_f32(r, x, x);
}

// log(1 + e) for e in [0, 1]: 1.96 ulp.
static inline float log1p_f32(float e) {
  const float s = e / (2.0f + e), z = s * s;
  float r = 0x1.1ed7bep-2f;
  r = fma_f32(r, z, 0x1.1ebd0ep-2f);
  r = fma_f32(r, z, 0x1.99d208p-2f);
  r = fma_f32(r, z, 0x1.555502p-1f);
  return fma_f32(s * z, r, 2.0f * s);
}

// 2.9 ulp.
static inline float softplus_f32(float x) {
  return (x > 0 ? x : 0.0f) + log1p_f32(exp_f32(-abs_f32(x)));
}

// 1.83 ulp for x > 0, 5e-8 absolute below.
static inline float gelu_tanh_f32(float x) {
  const float u = x * fma_f32(x * x, 0x1.2444f2p-4f, 0x1.988454p0f);
  const float e = exp_f32(-abs_f32(u));
  return (u >= 0 ? x : x * e) / (1.0f + e);
}

// erf for |z| <= kErfSmall: 1.00 ulp.
inline constexpr float kErfSmall = 0x1.dbp-1f;
static inline float erf_small_f32(float z) {
  const float s = z * z;
  float r = -0x1.38e000p-11f;
  r = fma_f32(r, s, 0x1.471a58p-8f);
  r = fma_f32(r, s, -0x1.b691b2p-6f);
  r = fma_f32(r, s, 0x1.ce1c44p-4f);
  r = fma_f32(r, s, -0x1.812700p-2f);
  r = fma_f32(r, s, 0x1.06eba8p-3f);
  return fma_f32(r, z, z);
}

// log(1 - erf(t)) for t > kErfSmall.
static inline float log_erfc_f32(float t) {
  const float s = t * t;
  const float a = fma_f32(-0x1.22p-16f, t, 0x1.91cfb2p-12f);
  const float b = fma_f32(-0x1.fd1438p-9f, t, 0x1.8d6342p-6f);
  float r = fma_f32(a, s, b);
  r = fma_f32(r, t, -0x1.b55cb8p-4f);
  r = fma_f32(r, t, -0x1.450aa0p-1f);
  r = fma_f32(r, t, -0x1.079d0cp-3f);
  return fma_f32(r, t, -t);
}

// 1.00 ulp.
static inline float erf_f32(float z) {
  const float t = abs_f32(z);
  return t <= kErfSmall ? erf_small_f32(z) : copy_sign_f32(1.0f - exp_f32(log_erfc_f32(t)), z);
}

// 1.72 ulp for x > 0, 5.3e-8 absolute below.
static inline float gelu_erf_f32(float x) {
  const float z = x * 0x1.6a09e6p-1f, t = abs_f32(z);
  if (t <= kErfSmall) return x * fma_f32(0.5f, erf_small_f32(z), 0.5f);
  const float h = 0.5f * exp_f32(log_erfc_f32(t));
  return x * (x > 0 ? 1.0f - h : h);
}

// ---- double functions

// Natural logarithm of a positive normal number: 0.86 ulp.
static inline double log64(double x) {
  const uint64_t u = bits_of(x);
  const int64_t exponent =
      int64_t(u - 0x3FE6A09E667F3BCDu) >> 52;  // x = 2^exponent * m, m in [sqrt(1/2), sqrt(2))
  const double k = double(exponent), f = f64_of(u - (uint64_t(exponent) << 52)) - 1.0;
  const double s = f / (2.0 + f), z = s * s;
  double r = 0x1.2f112df3e5244p-3;
  r = fma_f64(r, z, 0x1.39a09d078c69fp-3);
  r = fma_f64(r, z, 0x1.7466496cb03dep-3);
  r = fma_f64(r, z, 0x1.c71c51d8e78afp-3);
  r = fma_f64(r, z, 0x1.2492494229359p-2);
  r = fma_f64(r, z, 0x1.999999997fa04p-2);
  r = fma_f64(r, z, 0x1.5555555555593p-1);
  r = r * z;
  const double h = (0.5 * f) * f;
  return fma_f64(k, 0x1.62e42feep-1, -((h - fma_f64(s, h + r, k * 0x1.a39ef35793c76p-33)) - f));
}

// e^x for |x| <= 700: x = k*ln 2 + r, |r| <= ln(2)/2, ln 2 in two parts (the first has 32 bits, so k times it
// is exact), Taylor polynomial of degree 13 (cut-off error 0.02 ulp), 2^k added to the exponent.
inline constexpr double kExp64MaxUlp = 0.95;  // measured 0.88
static inline double exp64(double x) {
  const double shifted = fma_f64(x, 0x1.71547652b82fep0, 0x1.8p52);  // its low bits are round(x / ln 2)
  const double k = shifted - 0x1.8p52;
  double f = fma_f64(k, -0x1.62e42feep-1, x);
  f = fma_f64(k, -0x1.a39ef35793c76p-33, f);
  double p = 0x1.6124613a86d09p-33;  // 1/13!
  p = fma_f64(p, f, 0x1.1eed8eff8d898p-29);
  p = fma_f64(p, f, 0x1.ae64567f544e4p-26);
  p = fma_f64(p, f, 0x1.27e4fb7789f5cp-22);
  p = fma_f64(p, f, 0x1.71de3a556c734p-19);
  p = fma_f64(p, f, 0x1.a01a01a01a01ap-16);
  p = fma_f64(p, f, 0x1.a01a01a01a01ap-13);
  p = fma_f64(p, f, 0x1.6c16c16c16c17p-10);
  p = fma_f64(p, f, 0x1.1111111111111p-7);
  p = fma_f64(p, f, 0x1.5555555555555p-5);
  p = fma_f64(p, f, 0x1.5555555555555p-3);
  p = fma_f64(p, f, 0.5);
  p = fma_f64(p, f, 1.0);
  p = fma_f64(p, f, 1.0);
  return f64_of(bits_of(p) + (bits_of(shifted) << 52));
}

// Sine and cosine of |x| < 2^24; rounded to float within 0.5001 ulp.
static inline void sincos64(double x, double* sine, double* cosine) {
  const double shifted = fma_f64(x, 0x1.45f306dc9c883p-1, 0x1.8p52);  // its low bits are round(x / (pi/2))
  const double k = shifted - 0x1.8p52;
  double r = fma_f64(-k, 0x1.921fb544p0, x);  // pi/2 in three parts
  r = fma_f64(-k, 0x1.0b4611a6p-34, r);
  r = fma_f64(-k, 0x1.3198a2e037073p-69, r);
  const double z = r * r;
  double s = 0x1.5d93a5acfd57cp-33;
  s = fma_f64(s, z, -0x1.ae5e68a2b9cebp-26);
  s = fma_f64(s, z, 0x1.71de357b1fe7dp-19);
  s = fma_f64(s, z, -0x1.a01a019c161d5p-13);
  s = fma_f64(s, z, 0x1.111111110f8a6p-7);
  s = fma_f64(s, z, -0x1.5555555555549p-3);
  s = fma_f64(s * z, r, r);
  double c = -0x1.8fae9be8838d4p-37;
  c = fma_f64(c, z, 0x1.1ee9ebdb4b1c4p-29);
  c = fma_f64(c, z, -0x1.27e4f809c52adp-22);
  c = fma_f64(c, z, 0x1.a01a019cb159p-16);
  c = fma_f64(c, z, -0x1.6c16c16c15177p-10);
  c = fma_f64(c, z, 0x1.555555555554cp-5);
  c = fma_f64(z * z, c, fma_f64(-0.5, z, 1.0));
  switch (bits_of(shifted) & 3) {
    case 0:
      *sine = s, *cosine = c;
      break;
    case 1:
      *sine = c, *cosine = -s;
      break;
    case 2:
      *sine = -s, *cosine = -c;
      break;
    default:
      *sine = -c, *cosine = s;
      break;
  }
}

}  // namespace invar
