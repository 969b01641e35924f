#pragma once
// The functions of docs/numerics.md, section 8, in 16 lanes: operation for operation tensor/exact_math.h.

#include "kernels/cpu/isa/isa.h"

namespace invar::INVAR_ISA {

INVAR_INLINE void mark_fault(uint8_t* fault) {
  __atomic_store_n(fault, uint8_t(1), __ATOMIC_RELAXED);  // heads of a row may run on several threads
}

template <int N>
INVAR_INLINE Vf horner(Vf x, const float (&c)[N]) {
  Vf r = set1(c[0]);
  for (int i = 1; i < N; i++)
    r = fma(r, x, set1(c[i]));
  return r;
}

// exp without its limits: -87 <= x <= 88.
INVAR_INLINE Vf exp_inside(Vf x) {
  const Vf shifted = fma(x, set1(0x1.715476p0f), set1(0x1.8p23f));
  const Vf j = sub(shifted, set1(0x1.8p23f));
  Vf f = fma(j, set1(-0x1.62e400p-1f), x);
  f = fma(j, set1(-0x1.7f7d1cp-20f), f);
  const Vf p = horner(
      f, {0x1.694000p-10f, 0x1.125edcp-7f, 0x1.555b5ap-5f, 0x1.555450p-3f, 0x1.fffff6p-2f, 1.0f, 1.0f});
  return as_float(add_i(as_int(p), shl<23>(as_int(shifted))));
}
// E of the contract, x <= 0: +0 below -50. NaN gives anything: callers check their scores.
INVAR_INLINE Vf exp_or_zero(Vf x) {
  return select(lt(x, set1(-50.0f)), zero(), exp_inside(x));
}
// x <= 0; NaN stays NaN.
INVAR_INLINE Vf exp_negative(Vf x) {
  return select(lt(x, set1(-87.0f)), zero(), select(is_nan(x), x, exp_inside(x)));
}
INVAR_INLINE Vf exp(Vf x) {
  return select(gt(x, set1(88.0f)), set1(__builtin_inff()), exp_negative(x));
}

INVAR_INLINE Vf sigmoid(Vf x) {
  const Vf e = exp_negative(neg(abs(x)));
  return div(select(ge(x, zero()), set1(1.0f), e), add(set1(1.0f), e));
}
INVAR_INLINE Vf silu(Vf x) {
  const Vf e = exp_negative(neg(abs(x)));
  return div(select(ge(x, zero()), x, mul(x, e)), add(set1(1.0f), e));
}
INVAR_INLINE Vf tanh(Vf x) {
  const Vf e2 = exp_negative(mul(set1(-2.0f), abs(x)));
  const Vf far = copysign(div(sub(set1(1.0f), e2), add(set1(1.0f), e2)), x);
  const Vf s = mul(x, x);
  const Vf r =
      mul(horner(s, {-0x1.9b24c6p-8f, 0x1.593b1ep-6f, -0x1.b92844p-5f, 0x1.110d24p-3f, -0x1.55554ap-2f}), s);
  return select(gt(abs(x), set1(0.55f)), far, fma(r, x, x));
}
// e in [0, 1]
INVAR_INLINE Vf log1p(Vf e) {
  const Vf s = div(e, add(set1(2.0f), e)), z = mul(s, s);
  const Vf r = horner(z, {0x1.1ed7bep-2f, 0x1.1ebd0ep-2f, 0x1.99d208p-2f, 0x1.555502p-1f});
  return fma(mul(s, z), r, mul(set1(2.0f), s));
}
INVAR_INLINE Vf softplus(Vf x) {
  return add(max(x, zero()), log1p(exp_negative(neg(abs(x)))));
}
INVAR_INLINE Vf gelu_tanh(Vf x) {
  const Vf u = mul(x, fma(mul(x, x), set1(0x1.2444f2p-4f), set1(0x1.988454p0f)));
  const Vf e = exp_negative(neg(abs(u)));
  return div(select(ge(u, zero()), x, mul(x, e)), add(set1(1.0f), e));
}

INVAR_INLINE Vf softcap(Vf x, Vf cap) {
  return mul(cap, tanh(div(x, cap)));
}

static constexpr float kErfSmallLimit = 0x1.dbp-1f;
INVAR_INLINE Vf erf_small(Vf z) {
  const Vf r = horner(mul(z, z), {-0x1.38e000p-11f, 0x1.471a58p-8f, -0x1.b691b2p-6f, 0x1.ce1c44p-4f,
                                  -0x1.812700p-2f, 0x1.06eba8p-3f});
  return fma(r, z, z);
}
// log(1 - erf(t)), t > kErfSmallLimit
INVAR_INLINE Vf log_erfc(Vf t) {
  const Vf s = mul(t, t);
  const Vf a = fma(set1(-0x1.22p-16f), t, set1(0x1.91cfb2p-12f));
  const Vf b = fma(set1(-0x1.fd1438p-9f), t, set1(0x1.8d6342p-6f));
  Vf r = fma(a, s, b);
  r = fma(r, t, set1(-0x1.b55cb8p-4f));
  r = fma(r, t, set1(-0x1.450aa0p-1f));
  r = fma(r, t, set1(-0x1.079d0cp-3f));
  return fma(r, t, neg(t));
}
INVAR_INLINE Vf erf(Vf z) {
  const Vf t = abs(z);
  const Vf far = copysign(sub(set1(1.0f), exp_negative(log_erfc(t))), z);
  return select(le(t, set1(kErfSmallLimit)), erf_small(z), far);
}
INVAR_INLINE Vf gelu_erf(Vf x) {
  const Vf z = mul(x, set1(0x1.6a09e6p-1f)), t = abs(z), half = set1(0.5f);
  const Vf near = mul(x, fma(half, erf_small(z), half));
  const Vf h = mul(half, exp_negative(log_erfc(t)));
  const Vf far = mul(x, select(gt(x, zero()), sub(set1(1.0f), h), h));
  return select(le(t, set1(kErfSmallLimit)), near, far);
}

}  // namespace invar::INVAR_ISA
