#include "backends/cpu/routing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/fp_environment.h"

namespace invar {
namespace {

struct Routed {
  std::vector<int32_t> ids;
  std::vector<float> weights;
  uint8_t fault = 0;
};

Routed run(const Router& router, const std::vector<float>& scores) {
  const FpEnvironment contract;
  Routed r{std::vector<int32_t>(size_t(router.attr.chosen)), std::vector<float>(size_t(router.attr.chosen))};
  std::vector<float> scratch(scores.size());
  route(router, *choose_kernels("scalar"), scores.data(), scratch.data(), r.ids.data(), r.weights.data(),
        &r.fault);
  return r;
}

Router make_router(int32_t experts, ExpertsAttr attr) {
  return {.attr = attr, .experts = experts};
}

using Ids = std::vector<int32_t>;

TEST(Routing, equal_scores_go_to_the_lowest_ids) {
  for (const Routing routing : {Routing::kSoftmax, Routing::kSoftmaxOfChosen, Routing::kSigmoid}) {
    const Router router = make_router(6, {.set = 0, .chosen = 3, .routing = routing});
    EXPECT_EQ(run(router, {0, 0, 0, 0, 0, 0}).ids, (Ids{0, 1, 2}));
    EXPECT_EQ(run(router, {0, 1, 0, 1, 2, 0}).ids, (Ids{4, 1, 3}));
  }
}

TEST(Routing, a_correction_decides_the_choice_and_not_the_weight) {
  Router router = make_router(3, {.set = 0, .chosen = 1, .routing = Routing::kSigmoid});
  const std::vector<float> correction = {0, 0.9f, 0};
  router.correction = correction.data();
  const Routed r = run(router, {1, -1, 0});
  EXPECT_EQ(r.ids, (Ids{1}));
  EXPECT_NEAR(r.weights[0], 1 / (1 + std::exp(1.0)), 1e-6);
}

TEST(Routing, results_are_summed_by_descending_final_weight) {
  Router router = make_router(4, {.set = 0, .chosen = 3, .routing = Routing::kSoftmaxOfChosen, .scale = 2});
  const std::vector<float> factors = {1, 4, 1, 100};
  router.expert_scale = factors.data();
  const Routed r = run(router, {std::log(2.0f), 0, std::log(3.0f), -9});
  EXPECT_EQ(r.ids, (Ids{1, 2, 0}));
  EXPECT_NEAR(r.weights[0], 2 * 4 / 6.0, 1e-6);
  EXPECT_NEAR(r.weights[1], 2 * 3 / 6.0, 1e-6);
}

TEST(Routing, renormalized_weights_sum_to_the_scale) {
  const Router router =
      make_router(4, {.set = 0, .chosen = 2, .renormalize = true, .sum_floor = 1e-20f, .scale = 1.5f});
  const Routed r = run(router, {3, 1, 2, -4});
  EXPECT_EQ(r.ids, (Ids{0, 2}));
  EXPECT_NEAR(r.weights[0] + r.weights[1], 1.5, 1e-6);
}

TEST(Routing, a_score_that_is_not_finite_faults_and_still_gives_different_experts) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (size_t at = 0; at < 4; at++) {
      std::vector<float> scores = {1, 2, 3, 4};
      scores[at] = bad;
      Routed r = run(make_router(4, {.set = 0, .chosen = 3, .renormalize = true}), scores);
      EXPECT_EQ(r.fault, 1);
      std::sort(r.ids.begin(), r.ids.end());
      EXPECT_EQ(std::unique(r.ids.begin(), r.ids.end()), r.ids.end());
      EXPECT_GE(r.ids.front(), 0);
      EXPECT_LT(r.ids.back(), 4);
    }
  }
}

}  // namespace
}  // namespace invar
