#pragma once
// The 16-lane vectors of the set being compiled, in namespace invar::INVAR_ISA. Every header isa/X.h offers
// the same types and functions, with the same bits; kernels (cpu/*-inl.h) are written once over them.
//
// Types:
//   Vf, Vi, Vd: 16 x f32, i32, f64; Mask: 16 truth values
//   kVfRegisters: how many Vf fit the register file; kernels size their blocks by it
// Memory, at any alignment; _n: the first n lanes, 0 <= n <= 16, the others load as +0 and are not written:
//   load, load_n, store, store_n, load_i, store_i
//   load_f16, load_bf16 (_n): widened exactly
//   store_f16, store_bf16: narrowed by RNE, beyond the range to infinity
// Vf:
//   set1 (broadcast), add, sub, mul, div, sqrt, fma(a, b, c) = a*b + c: each rounded once
//   max(a, b) = a > b ? a : b: NaN in either gives b, and of two zeros b
//   neg, abs, copysign(magnitude, sign): sign bits
//   lt, le, gt, ge, is_nan: masks; comparisons with NaN are false
//   as_int: the bits
// Vi:
//   set1_i, lane_ids (0..15), add_i, sub_i, and_i, or_i, xor_i, shl<n>, shr<n> (logical), gt_i, eq_i, ge_i
//   to_float (RN), as_float (the bits)
//   mul_even(a, b): 64-bit products of the even lanes; low words in even lanes, high words in odd ones
//   odd_to_even: odd lanes moved to the even ones; odd lanes become 0
//   interleave_even(a, b): a0 b0 a2 b2 ...
// Mask:
//   first_n(n), both, either, negate, any, select(m, a, b) = m ? a : b, lane_bits (bit l = lane l)
// Vd:
//   set1_d, to_double (exact), add, sub, mul
// Reductions, by the tree s[l] += s[l+8], 4, 2, 1 of docs/numerics.md, section 1:
//   reduce_add (Vf, Vd), reduce_max, reduce_max_i
//
// C headers only and internal linkage, so that nothing of one set can be linked into another.

#include <cstdint>
#include <cstring>

#define INVAR_INLINE static inline __attribute__((always_inline))

#include INVAR_ISA_HEADER

// Functions that follow from the ones above.
namespace invar::INVAR_ISA {

INVAR_INLINE Vf zero() {
  return set1(0.0f);
}
INVAR_INLINE Vf clamp(Vf x, float low, float high) {
  x = select(gt(x, set1(high)), set1(high), x);
  return select(lt(x, set1(low)), set1(low), x);
}
// Lanes that are NaN or infinite.
INVAR_INLINE Mask not_finite(Vf x) {
  return gt_i(and_i(as_int(x), set1_i(0x7FFFFFFF)), set1_i(0x7F7FFFFF));
}

}  // namespace invar::INVAR_ISA
