#pragma once
// Noise of sampling: a pure function of (seed, position, token id, sample index, purpose), docs/numerics.md
// section 7. Nothing is advanced, so a resumed, forked or speculated sequence meets the same noise.

#include <cstdint>

#include "tensor/exact_math.h"
#include "tensor/philox.h"

namespace invar {

enum class NoiseDomain : uint32_t { kToken = 0, kXtc = 1, kMirostat = 2 };

struct NoiseKey {
  uint64_t seed;
  uint32_t position;  // of the token being chosen
  uint32_t sample_index;
  NoiseDomain domain = NoiseDomain::kToken;
};

// 64 random bits for tokens 2 * pair and 2 * pair + 1.
struct NoisePair {
  uint64_t even, odd;
};
constexpr NoisePair noise_pair(const NoiseKey& key, uint32_t pair) {
  const PhiloxBlock b = philox4x32({pair, key.position, key.sample_index, uint32_t(key.domain)},
                                   {uint32_t(key.seed), uint32_t(key.seed >> 32)});
  return {uint64_t(b[1]) << 32 | b[0], uint64_t(b[3]) << 32 | b[2]};
}
constexpr uint64_t noise_bits(const NoiseKey& key, int32_t token) {
  const NoisePair pair = noise_pair(key, uint32_t(token) >> 1);
  return token & 1 ? pair.odd : pair.even;
}

// Uniform on the midpoints of 2^52 cells, strictly inside (0, 1).
constexpr double uniform_of(uint64_t r) {
  return (double(r >> 12) + 0.5) * 0x1p-52;
}

// Standard Gumbel noise: adding it to logits and taking the argmax draws from their softmax. -3.61 < G
// < 36.74.
static inline double gumbel_of(uint64_t r) {
  return -log64(-log64(uniform_of(r)));
}

inline constexpr double kGumbelMax = 36.74;

}  // namespace invar
