#pragma once
// The 16-lane vectors of the set being compiled, in namespace invar::INVAR_ISA. Every header isa/X.h offers
// the same types and functions, with the same bits; kernels (cpu/*-inl.h) are written once over them.
//
//   Vf, Vi, Mask            16 x f32, 16 x i32, 16 truth values
//   set1, set1_i, lane_ids  broadcasts; 0..15
//   load, load_n, store, store_n, load_i, store_i       any alignment; _n: the first n lanes, 0 <= n <= 16,
//   the
//                                                       others load as +0 and are not written
//   load_f16, load_bf16 (_n), store_f16, store_bf16     widened exactly; narrowed by RNE, beyond the range:
//   infinity add sub mul div sqrt fma(a, b, c) = a*b + c         each rounded once max(a, b) = a > b ? a : b
//   so NaN in either gives b, and of two zeros b neg abs copysign(magnitude, sign)                   sign
//   bits lt le gt ge is_nan, gt_i eq_i ge_i                  masks; comparisons with NaN are false
//   first_n(n), both, either, negate, any, select(m, a, b) = m ? a : b; lane_bits: bit l = lane l
//   add_i sub_i and_i or_i xor_i shl<n> shr<n> (logical)  as_int as_float (bits)  to_float (RN)
//   mul_even(a, b)          64-bit products of the even lanes, low words in even lanes, high words in odd
//   ones odd_to_even, interleave_even(a, b)                  odd lanes moved to the even ones, odd = 0; even
//   lanes of
//                                                       a, then of b: a0 b0 a2 b2 ...
//   Vd: 16 x f64            set1_d, to_double (exact), add sub mul, reduce_add
//   reduce_add, reduce_max, reduce_max_i                lane order tree s[l] += s[l+8], 4, 2, 1 (contract,
//   section 1) kVfRegisters            how many Vf fit the register file: kernels size their blocks by it
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
// 1 / x as the contract has it: an IEEE divide.
INVAR_INLINE Vf clamp(Vf x, float low, float high) {
  x = select(gt(x, set1(high)), set1(high), x);
  return select(lt(x, set1(low)), set1(low), x);
}
// Lanes that are NaN or infinite.
INVAR_INLINE Mask not_finite(Vf x) {
  return gt_i(and_i(as_int(x), set1_i(0x7FFFFFFF)), set1_i(0x7F7FFFFF));
}

}  // namespace invar::INVAR_ISA
