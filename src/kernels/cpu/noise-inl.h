#pragma once
// Which tokens can still win the draw of docs/numerics.md, section 7: Philox in 16 lanes, and a bound of the
// noise instead of its logarithms.

#include <cstdint>

#include "kernels/cpu/ops-inl.h"
#include "tensor/row_kernels.h"

namespace invar::INVAR_ISA {

// Philox of one key. A word of a counter lives in the even lanes; odd lanes hold anything.
struct TokenNoise {
  Vi position, sample_index, domain;
  Vi round_key[10][2];
};
static TokenNoise token_noise(const NoiseKey& key) {
  TokenNoise n;
  n.position = set1_i(int32_t(key.position));
  n.sample_index = set1_i(int32_t(key.sample_index));
  n.domain = set1_i(int32_t(key.domain));
  uint32_t k0 = uint32_t(key.seed), k1 = uint32_t(key.seed >> 32);
  for (auto& k : n.round_key) {
    k[0] = set1_i(int32_t(k0));
    k[1] = set1_i(int32_t(k1));
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return n;
}

// The upper words of the random numbers of 16 tokens from an even one on, in order: of every block the words
// 1 and 3.
INVAR_INLINE Vi upper_words(const TokenNoise& n, int32_t token) {
  const Vi m0 = set1_i(int32_t(0xD2511F53)), m1 = set1_i(int32_t(0xCD9E8D57));
  Vi c0 = add_i(set1_i(int32_t(uint32_t(token) / 2)), shr<1>(lane_ids()));
  Vi c1 = n.position, c2 = n.sample_index, c3 = n.domain;
#pragma GCC unroll 10
  for (const auto& k : n.round_key) {
    const Vi p0 = mul_even(c0, m0), p1 = mul_even(c2, m1);
    c0 = xor_i(odd_to_even(p1), xor_i(c1, k[0]));
    c2 = xor_i(odd_to_even(p0), xor_i(c3, k[1]));
    c1 = p1;
    c3 = p0;
  }
  return interleave_even(c1, c3);
}

// With m the complement of the upper word: -log(u) >= 1 - u > m * 2^-32, so G < (32 - log2(m)) * ln2, and the
// bits of a float, read as a number, give at most its log2.
static int32_t contenders(const float* x, int32_t begin, int32_t end, const NoiseKey& key, float best,
                          int32_t* ids) {
  constexpr float kHighestNoise = 36.75f;  // above any G
  constexpr float kLn2 = 0.693147180559945f, kSlack = 1e-3f;
  const TokenNoise noise = token_noise(key);
  int32_t count = 0;
  for (int32_t i = begin; i < end; i += 16) {
    const int n = end - i < 16 ? end - i : 16;
    const Vf gap = sub(set1(best), load_up_to(x + i, n));
    if (lane_bits(le(gap, set1(kHighestNoise))) == 0) continue;
    const Vi m_half = shr<1>(xor_i(upper_words(noise, i), set1_i(-1)));
    const Vf log2_bits = to_float(as_int(to_float(m_half)));  // (log2(m / 2) + 127) * 2^23, or less
    const Vf bound = fma(log2_bits, set1(-0x1p-23f * kLn2), set1(158.0f * kLn2 + kSlack));
    uint32_t lanes = lane_bits(le(gap, bound)) & ((1u << n) - 1);
    for (; lanes != 0; lanes &= lanes - 1)
      ids[count++] = i + __builtin_ctz(lanes);
  }
  return count;
}

}  // namespace invar::INVAR_ISA
