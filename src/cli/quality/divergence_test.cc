#include "cli/quality/divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/fp_environment.h"

namespace invar {
namespace {

TEST(Divergence, equals_what_is_computed_by_hand) {
  const FpEnvironment environment;
  // p = (1/2, 1/4, 1/4), q = (1/4, 1/2, 1/4): KL = 1/2 ln 2 - 1/4 ln 2 = ln 2 / 4.
  const float ln2 = float(std::log(2.0));
  const std::vector<float> p = {ln2, 0, 0}, q = {0, ln2, 0};
  const auto d = compare_rows(p, q, 1);
  ASSERT_TRUE(d.ok());
  EXPECT_NEAR(d->kl, std::log(2.0) / 4, 1e-8);
  EXPECT_NEAR(d->p_logprob, std::log(0.25), 1e-7);
  EXPECT_NEAR(d->q_logprob, std::log(0.5), 1e-7);
  EXPECT_FALSE(d->same_top);
  // A shift of all logits changes nothing.
  const std::vector<float> shifted = {ln2 + 100, 100, 100};
  const auto same = compare_rows(p, shifted, 0);
  EXPECT_NEAR(same->kl, 0, 1e-5);
  EXPECT_TRUE(same->same_top);
  // The order matters: KL(q || p) of these is another number than of unlike ones.
  const std::vector<float> wide = {0, -20, -20};
  EXPECT_NEAR(compare_rows(p, wide, 0)->kl, 0.5 * std::log(0.5) + 0.5 * (std::log(0.25) + 20), 1e-6);
  EXPECT_NEAR(compare_rows(wide, p, 0)->kl, std::log(2.0), 1e-6);
}

TEST(Divergence, logits_far_apart_neither_overflow_nor_vanish_into_nan) {
  const FpEnvironment environment;
  const std::vector<float> p = {1e30f, -1e30f, 0}, q = {0, 0, 0};
  const auto d = compare_rows(p, q, 1);
  ASSERT_TRUE(d.ok());
  EXPECT_NEAR(d->kl, std::log(3.0), 1e-9);
  EXPECT_TRUE(std::isfinite(compare_rows(q, p, 1)->kl));
  EXPECT_GT(compare_rows(q, p, 1)->kl, 1e29);
}

TEST(Divergence, a_row_that_is_not_finite_is_an_error_that_says_whose) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const std::vector<float> good = {0, 1}, bad = {0, nan}, endless = {inf, 0};
  EXPECT_NE(compare_rows(bad, good, 0).status().message().find("first"), std::string::npos);
  EXPECT_NE(compare_rows(good, endless, 0).status().message().find("second"), std::string::npos);
}

TEST(Divergence, quantiles_are_values_by_nearest_rank) {
  std::vector<double> v;
  for (int i = 200; i >= 1; --i)
    v.push_back(i);
  EXPECT_EQ(quantile_of(v, 0.99), 198);
  EXPECT_EQ(quantile_of(v, 0.5), 100);
  EXPECT_EQ(quantile_of(v, 1), 200);
  EXPECT_EQ(quantile_of({3}, 0.99), 3);
  EXPECT_EQ(mean_of(v), 100.5);
  EXPECT_NEAR(standard_error(std::vector<double>{1, 2, 3, 4}), std::sqrt(5.0 / 3 / 4), 1e-15);
}

}  // namespace
}  // namespace invar
