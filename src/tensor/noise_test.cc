#include "tensor/noise.h"

#include <gtest/gtest.h>

#include <cmath>

namespace invar {
namespace {

TEST(Philox, known_answers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // The third vector that Random123 publishes: digits of pi.
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Noise, words_follow_the_contract) {
  const NoiseKey key{0x299f31d0a4093822, 0x85a308d3, 0x13198a2e, NoiseDomain(0x03707344)};
  const NoisePair pair = noise_pair(key, 0x243f6a88);
  EXPECT_EQ(pair.even, 0x94fdccebd16cfe09u);
  EXPECT_EQ(pair.odd, 0x24126ea15001e420u);
}

TEST(Noise, gumbel_stays_within_its_bounds) {
  EXPECT_GT(uniform_of(0), 0.0);
  EXPECT_LT(uniform_of(~uint64_t{0}), 1.0);
  EXPECT_GT(gumbel_of(0), -3.61);
  EXPECT_LT(gumbel_of(~uint64_t{0}), kGumbelMax);
  EXPECT_NEAR(gumbel_of(uint64_t{1} << 63), -std::log(std::log(2.0)), 1e-12);
}

TEST(Noise, every_part_of_the_key_matters) {
  const NoiseKey base{1, 2, 3, NoiseDomain::kToken};
  const uint64_t r = noise_pair(base, 4).even;
  EXPECT_NE(r, noise_pair({2, 2, 3}, 4).even);
  EXPECT_NE(r, noise_pair({1 | uint64_t{1} << 40, 2, 3}, 4).even);
  EXPECT_NE(r, noise_pair({1, 3, 3}, 4).even);
  EXPECT_NE(r, noise_pair({1, 2, 4}, 4).even);
  EXPECT_NE(r, noise_pair({1, 2, 3, NoiseDomain::kXtc}, 4).even);
  EXPECT_NE(r, noise_pair(base, 5).even);
  EXPECT_NE(r, noise_pair(base, 4).odd);
}

}  // namespace
}  // namespace invar
