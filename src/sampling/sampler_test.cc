#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "sampling/processor.h"
#include "sampling/testing/plain_rows.h"
#include "tensor/exact_math.h"

namespace invar {
namespace {

using Row = std::vector<float>;

Row random_logits(size_t n, uint32_t seed, float spread) {
  std::mt19937 random(seed);
  Row x(n);
  for (float& v : x)
    v = (float(random() % 1000000) / 500000.0f - 1.0f) * spread;
  return x;
}

Choice choose(const Row& logits, const SamplingParams& params, const TokenCounts& counts = {},
              int32_t position = 0, std::span<const uint32_t> mask = {}) {
  Sampler sampler(kPlainRows);
  Result<Choice> choice = sampler.choose({logits, params, counts, mask, position});
  EXPECT_TRUE(choice.ok()) << choice.status().message();
  return choice.ok() ? std::move(*choice) : Choice();
}

Row processed(const Row& logits, const SamplingParams& params, const TokenCounts& counts = {},
              std::span<const uint32_t> mask = {}) {
  Sampler sampler(kPlainRows);
  const auto x = sampler.process({logits, params, counts, mask, 0});
  return Row(x.begin(), x.end());
}

std::set<int32_t> survivors(const Row& logits, const SamplingParams& params) {
  const Row x = processed(logits, params);
  std::set<int32_t> ids;
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i] != kExcluded) ids.insert(int32_t(i));
  return ids;
}

TEST(Sampler, zero_temperature_takes_the_lowest_id_of_the_highest_logit) {
  EXPECT_EQ(choose({1, 5, 3, 5}, {.temperature = 0}).token, 1);
  EXPECT_EQ(choose({-3, -1, -1}, {.temperature = 0, .seed = 99}).token, 1);
  EXPECT_EQ(choose({-0.0f, 0.0f}, {.temperature = 0}).token, 0);
}

TEST(Sampler, logits_that_are_not_finite_are_an_error) {
  Sampler sampler(kPlainRows);
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    const Row x = {1, bad, 2};
    const auto choice = sampler.choose({x, {}, {}, {}, 0});
    ASSERT_FALSE(choice.ok());
    EXPECT_EQ(choice.status().code(), Code::kInternal);
  }
}

TEST(Sampler, nothing_allowed_is_an_error) {
  Sampler sampler(kPlainRows);
  const Row x = {1, 2};
  const uint32_t none[1] = {0};
  EXPECT_FALSE(sampler.choose({x, {}, {}, none, 0}).ok());
}

TEST(Sampler, chain_has_the_order_of_the_contract) {
  std::vector<std::string> names;
  for (const Processor& p : processors())
    names.push_back(p.name);
  EXPECT_EQ(names, (std::vector<std::string>{"mask", "min_tokens", "repetition", "frequency", "presence",
                                             "dry", "bias", "temperature", "top_n_sigma", "top_k",
                                             "typical_p", "top_p", "min_p", "xtc", "mirostat"}));
}

TEST(Sampler, penalties_count_what_they_say) {
  TokenCounts counts;
  std::vector<int32_t> tokens;
  for (const int32_t token : {0, 1, 1, 4})
    tokens.push_back(token), counts.appended(tokens, 4);
  for (const int32_t token : {1, 2, 2, 2})
    tokens.push_back(token), counts.appended(tokens, 4);
  const Row logits = {2, 2, 2, 2, -2};
  EXPECT_EQ(processed(logits, {.presence_penalty = 0.5f}, counts), (Row{2, 1.5f, 1.5f, 2, -2}));
  EXPECT_EQ(processed(logits, {.frequency_penalty = 0.5f}, counts), (Row{2, 1.5f, 0.5f, 2, -2}));
  EXPECT_EQ(processed(logits, {.repetition_penalty = 2}, counts), (Row{1, 1, 1, 2, -4}));
  // repetition, then count * frequency, then presence, then bias, then temperature
  const SamplingParams all{.temperature = 0.5f,
                           .presence_penalty = 0.25f,
                           .frequency_penalty = 0.5f,
                           .repetition_penalty = 2,
                           .logit_bias = {{2, 10.0f}, {3, -INFINITY}}};
  EXPECT_EQ(processed(logits, all, counts),
            (Row{2, (1 - 0.5f - 0.25f) * 2, (1 - 1.5f - 0.25f + 10) * 2, kExcluded, -8}));
}

TEST(Sampler, mask_comes_first_and_excludes) {
  const uint32_t words[2] = {0b1010, 1};
  Row logits(33, 1.0f);
  logits[0] = 9;
  const Row x = processed(logits, {.logit_bias = {{0, 100.0f}}}, {}, words);
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(x[i] != kExcluded, i == 1 || i == 3 || i == 32) << i;
}

TEST(Sampler, overflow_saturates_and_stays_a_candidate) {
  const float max = std::numeric_limits<float>::max();
  EXPECT_EQ(processed({3e38f, -3e38f}, {.temperature = 0.1f}), (Row{max, -max}));
  EXPECT_EQ(choose({3e38f, -3e38f}, {.temperature = 1e-30f}).token, 0);
}

TEST(Sampler, filters_keep_known_sets) {
  // probabilities 0.4, 0.3, 0.2, 0.05, 0.05
  const Row logits = {std::log(0.05f), std::log(0.4f), std::log(0.2f), std::log(0.3f), std::log(0.05f)};
  EXPECT_EQ(survivors(logits, {.top_k = 2}), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(survivors(logits, {.top_k = 4}), (std::set<int32_t>{0, 1, 2, 3}))
      << "equal ones by the lowest id";
  EXPECT_EQ(survivors(logits, {.top_k = 9}).size(), 5u);
  EXPECT_EQ(survivors(logits, {.top_p = 0.01f}), (std::set<int32_t>{1}));
  EXPECT_EQ(survivors(logits, {.top_p = 0.65f}), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(survivors(logits, {.top_p = 0.85f}), (std::set<int32_t>{1, 2, 3}));
  EXPECT_EQ(survivors(logits, {.top_p = 0.92f}), (std::set<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(survivors(logits, {.min_p = 0.45f}), (std::set<int32_t>{1, 2, 3}));
  EXPECT_EQ(survivors(logits, {.min_p = 1.0f}), (std::set<int32_t>{1}));
  // Each filter sees what the one before left: among {0.4, 0.3} the first holds 4/7.
  EXPECT_EQ(survivors(logits, {.top_k = 2, .top_p = 0.55f}), (std::set<int32_t>{1}));
  EXPECT_EQ(survivors(logits, {.top_k = 2, .top_p = 0.6f}), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(survivors(logits, {.temperature = 0, .top_k = 1}).size(), 5u) << "argmax needs no filters";
}

TEST(Sampler, top_p_agrees_with_a_full_sort_on_large_rows) {
  const Row logits = random_logits(20000, 7, 5.0f);
  const float max = *std::max_element(logits.begin(), logits.end());
  Row weights(logits.size());
  const float sum = plain_exp_sum(logits.data(), int64_t(logits.size()), max, weights.data());
  std::vector<std::pair<float, int32_t>> order;  // ascending: negated probability, then id
  for (size_t i = 0; i < weights.size(); ++i)
    order.push_back({-(weights[i] / sum), int32_t(i)});
  std::sort(order.begin(), order.end());
  for (const float p : {0.001f, 0.3f, 0.9f, 0.99f, 0.99999f}) {
    std::set<int32_t> expected;
    for (double held = 0; held < double(p) && expected.size() < order.size();) {
      held -= double(order[expected.size()].first);
      expected.insert(order[expected.size()].second);
    }
    EXPECT_EQ(survivors(logits, {.top_p = p}), expected) << p;
  }
}

// Pruning must not change the winner: the plain definition, every token with its noise.
TEST(Sampler, choice_is_the_argmax_with_every_token_evaluated) {
  for (uint32_t trial = 0; trial < 300; ++trial) {
    const size_t n = 1 + trial * 7 % 700;
    Row x = random_logits(n, trial, trial % 3 == 0 ? 0.5f : trial % 3 == 1 ? 8.0f : 60.0f);
    if (n > 5) x[trial % n] = kExcluded;
    const NoiseKey key{trial * 77u, trial, trial % 2};
    int32_t best = -1;
    double best_value = 0;
    for (size_t i = 0; i < n; ++i) {
      if (x[i] == kExcluded) continue;
      const double value = double(x[i]) + gumbel_of(noise_bits(key, int32_t(i)));
      if (best < 0 || value > best_value) best = int32_t(i), best_value = value;
    }
    ASSERT_EQ(gumbel_argmax(x, int32_t(plain_argmax(x.data(), int64_t(n))), key, kPlainRows), best) << trial;
  }
}

// Chi-square over fixed seeds; the bound is the 1e-6 quantile, so a right sampler passes forever.
TEST(Sampler, draws_follow_the_distribution) {
  const Row logits = {0.0f, 1.0f, 2.0f, -1.0f, 0.5f, -30.0f, 1.5f, 0.25f};
  for (const float temperature : {0.7f, 1.0f, 1.6f}) {
    constexpr int kDraws = 40000;
    std::vector<double> p(logits.size());
    double sum = 0;
    for (size_t i = 0; i < p.size(); ++i)
      sum += p[i] = std::exp(double(logits[i]) / double(temperature));
    std::vector<int> seen(logits.size());
    Sampler sampler(kPlainRows);
    SamplingParams params{.temperature = temperature};
    for (int draw = 0; draw < kDraws; ++draw) {
      params.seed = uint64_t(draw % 200) * 0x9E3779B97F4A7C15;
      const auto choice = sampler.choose({logits, params, {}, {}, draw / 200});
      ++seen[size_t(choice.value().token)];
    }
    double chi_square = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      const double expected = kDraws * p[i] / sum;
      if (expected > 5) chi_square += (seen[i] - expected) * (seen[i] - expected) / expected;
    }
    EXPECT_LT(chi_square, 38.3) << "6 degrees of freedom, temperature " << temperature;
    EXPECT_EQ(seen[5], 0);
  }
}

TEST(Sampler, sample_index_and_position_give_other_draws) {
  const Row logits(1000, 0.0f);
  EXPECT_NE(choose(logits, {.seed = 1}).token, choose(logits, {.seed = 2}).token);
  EXPECT_NE(choose(logits, {.seed = 1}).token, choose(logits, {.seed = 1, .sample_index = 1}).token);
  EXPECT_NE(choose(logits, {.seed = 1}, {}, 5).token, choose(logits, {.seed = 1}, {}, 6).token);
  EXPECT_EQ(choose(logits, {.seed = 1}, {}, 5).token, choose(logits, {.seed = 1}, {}, 5).token);
}

TEST(Sampler, logprobs_are_the_raw_log_softmax) {
  const Row logits = random_logits(3000, 11, 9.0f);
  double max = *std::max_element(logits.begin(), logits.end()), sum = 0;
  for (const float x : logits)
    sum += std::exp(double(x) - max);
  SamplingParams params{
      .temperature = 0.3f, .top_k = 5, .logit_bias = {{17, 5.0f}}, .seed = 3, .logprobs = 20};
  const Choice choice = choose(logits, params);
  const auto expected = [&](int32_t token) { return double(logits[token]) - max - std::log(sum); };
  EXPECT_NEAR(choice.logprob, expected(choice.token), 2e-6);
  ASSERT_EQ(choice.alternatives.size(), 20u);
  std::vector<int32_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = int32_t(i);
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(choice.alternatives[i].token, order[i]);
    EXPECT_NEAR(choice.alternatives[i].logprob, expected(order[i]), 2e-6);
  }
  EXPECT_TRUE(choose(logits, {.logprobs = 0}).alternatives.empty());
  EXPECT_LT(choose(logits, {.logprobs = 0}).logprob, 0);
}

TEST(Sampler, logprobs_have_the_bits_of_the_contract) {
  const Row logits = random_logits(505, 12, 30.0f);
  const int64_t n = int64_t(logits.size());
  const float max = *std::max_element(logits.begin(), logits.end());
  const double log_sum = log64(double(plain_exp_sum(logits.data(), n, max, nullptr)));
  RawLogprobs logprobs;
  logprobs.compute(logits, kPlainRows);
  for (int32_t k = 0; k < n; ++k)
    ASSERT_EQ(bits_of(logprobs.of(k)), bits_of(float(double(logits[k] - max) - log_sum))) << k;
}

TEST(Sampler, equal_alternatives_come_by_id) {
  const Choice choice = choose({1, 2, 2, 1, 2}, {.temperature = 0, .logprobs = 4});
  std::vector<int32_t> ids;
  for (const TokenLogprob& a : choice.alternatives)
    ids.push_back(a.token);
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 2, 4, 0}));
}

}  // namespace
}  // namespace invar
