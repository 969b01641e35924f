// Each filter against its published definition, computed here in double precision, and the properties that
// all share.
#include <limits>

#include "sampling/chain.h"
#include "sampling/mirostat.h"
#include "sampling/processor.h"
#include "sampling/testing/sampling_fixture.h"
#include "tensor/exact_math.h"

namespace invar {
namespace {

std::vector<Row> rows() {
  std::vector<Row> all;
  for (uint32_t seed = 0; seed < 6; ++seed) {
    all.push_back(random_row(500 + seed * 131, seed, 1.0f + float(seed) * 4));
    all.push_back(peaked_row(3000 + seed * 7, seed));
  }
  // Plateaus: distances from the mean that do not follow the order of the logits.
  Row plateaus(8001, -9.0f);
  for (size_t i = 0; i < 4000; ++i)
    plateaus[i * 2] = -7.0f;
  plateaus[5] = 0;
  all.push_back(plateaus);
  return all;
}

TEST(Filters, typical_p_keeps_what_is_nearest_to_the_entropy) {
  for (const Row& x : rows()) {
    const std::vector<double> p = probabilities(x);
    const double h = entropy_of(p);
    std::vector<double> distance;
    for (const double v : p)
      distance.push_back(std::fabs(-std::log(v) - h));
    const std::vector<int32_t> order = sorted_by(distance);
    for (const float mass : {0.05f, 0.2f, 0.5f, 0.9f, 0.99f}) {
      Ids expected;
      double held = 0;
      for (size_t i = 0; i < order.size() && held < double(mass); ++i) {
        expected.insert(order[i]);
        held += p[size_t(order[i])];
      }
      EXPECT_EQ(left(x, {.typical_p = mass}), expected) << mass;
    }
  }
}

TEST(Filters, typical_p_may_drop_the_most_likely_token) {
  // Information of the first token: 0.36 nats; of the others 3.0; entropy 1.15: the first is nearer.
  Row flat(20, 0.0f);
  EXPECT_EQ(left(flat, {.typical_p = 0.26f}), (Ids{0, 1, 2, 3, 4, 5})) << "equal ones by id";
  // 0.55 and 45 times 0.01: entropy 2.4, information 0.6 and 4.6.
  Row x(46, std::log(0.01f));
  x[7] = std::log(0.55f);
  EXPECT_EQ(left(x, {.typical_p = 0.5f}), (Ids{7}));
  // 0.2 and 80 times 0.01: entropy 4.0, information 1.6 and 4.6.
  Row y(81, std::log(0.01f));
  y[7] = std::log(0.2f);
  const Ids kept = left(y, {.typical_p = 0.495f});
  EXPECT_FALSE(kept.contains(7));
  EXPECT_EQ(kept.size(), 50u);
}

TEST(Filters, top_n_sigma_cuts_below_n_deviations) {
  for (const Row& x : rows()) {
    double mean = 0, squares = 0, max = -INFINITY;
    for (const float v : x)
      mean += double(v) / double(x.size()), max = std::max(max, double(v));
    for (const float v : x)
      squares += (double(v) - mean) * (double(v) - mean);
    const double sigma = std::sqrt(squares / double(x.size()));
    for (const float n : {0.01f, 0.5f, 1.0f, 2.0f, 100.0f}) {
      Ids expected;
      for (size_t i = 0; i < x.size(); ++i)
        if (double(x[i]) >= max - double(n) * sigma) expected.insert(int32_t(i));
      EXPECT_EQ(left(x, {.top_n_sigma = n}), expected) << n;
    }
  }
  Row far(64, -3e38f);
  far[3] = 3e38f;
  EXPECT_EQ(left(far, {.top_n_sigma = 1.0f}), (Ids{3}));
}

TEST(Filters, excluded_tokens_do_not_count_for_sigma_and_entropy) {
  Row x(64, -50.0f);
  for (size_t i = 0; i < 8; ++i)
    x[i] = float(i);
  ChainInput masked;
  masked.mask = {0xFF, 0};
  // Of 0 .. 7: mean 3.5, sigma 2.29.
  EXPECT_EQ(left(x, {.top_n_sigma = 1.0f}, masked), (Ids{5, 6, 7}));
  Row alone(8);
  for (size_t i = 0; i < 8; ++i)
    alone[i] = float(i);
  for (const float p : {0.1f, 0.5f, 0.8f})
    EXPECT_EQ(left(x, {.typical_p = p}, masked), left(alone, {.typical_p = p}));
  const SamplingParams dynamic{.temperature = 1.0f, .dynatemp_range = 0.5f};
  EXPECT_EQ(bits_of(chained(x, dynamic, masked)[5]), bits_of(chained(alone, dynamic)[5]));
}

TEST(Filters, min_p_and_top_k_agree_with_a_full_sort) {
  for (const Row& x : rows()) {
    const std::vector<double> p = probabilities(x);
    const double most = *std::max_element(p.begin(), p.end());
    for (const float share : {1e-6f, 0.011f, 0.3f, 1.0f}) {
      Ids expected;
      for (size_t i = 0; i < p.size(); ++i)
        if (p[i] >= double(share) * most) expected.insert(int32_t(i));
      EXPECT_EQ(left(x, {.min_p = share}), expected) << share;
    }
    std::vector<double> falling(x.begin(), x.end());
    for (double& v : falling)
      v = -v;
    const std::vector<int32_t> order = sorted_by(falling);
    for (const size_t k :
         {size_t{1}, size_t{2}, size_t{40}, size_t{300}, x.size() - 1, x.size(), x.size() + 9})
      EXPECT_EQ(left(x, {.top_k = int32_t(k)}),
                Ids(order.begin(), order.begin() + ptrdiff_t(std::min(k, order.size()))))
          << k;
  }
}

TEST(Filters, top_k_takes_the_lowest_ids_among_equals_across_blocks) {
  Row x(1000, 1.0f);
  Ids expected;
  for (int32_t i = 0; i < 70; ++i)
    expected.insert(i);
  EXPECT_EQ(left(x, {.top_k = 70}), expected);
  x[999] = 2.0f;
  expected.erase(69);
  expected.insert(999);
  EXPECT_EQ(left(x, {.top_k = 70}), expected);
}

// ---- XTC

TEST(Filters, xtc_leaves_the_least_likely_of_the_top_choices_and_the_rest) {
  const Row x = {std::log(0.1f), std::log(0.4f), std::log(0.06f), std::log(0.3f), std::log(0.14f)};
  EXPECT_EQ(left(x, {.xtc_probability = 1, .xtc_threshold = 0.25f}), (Ids{0, 2, 3, 4}));
  EXPECT_EQ(left(x, {.xtc_probability = 1, .xtc_threshold = 0.12f}), (Ids{0, 2, 4}));
  EXPECT_EQ(left(x, {.xtc_probability = 1, .xtc_threshold = 0.0f}), (Ids{2}));
  EXPECT_EQ(left(x, {.xtc_probability = 1, .xtc_threshold = 0.35f}).size(), 5u) << "one top choice stays";
  EXPECT_EQ(left(x, {.xtc_probability = 1, .xtc_threshold = 0.9f}).size(), 5u);
  EXPECT_EQ(left(x, {.xtc_probability = 0, .xtc_threshold = 0.1f}).size(), 5u);
  const Row equal(4, 0.0f);
  EXPECT_EQ(left(equal, {.xtc_probability = 1, .xtc_threshold = 0.2f}), (Ids{3})) << "the last of equal ones";
  EXPECT_EQ(left(x, {.top_k = 4, .xtc_probability = 1, .xtc_threshold = 0.12f}), (Ids{0, 4}))
      << "what another filter dropped stays out";
}

TEST(Filters, xtc_strikes_as_often_as_it_should_and_by_its_own_noise) {
  const Row x = {1, 1, 0};
  for (const float probability : {0.1f, 0.5f, 0.9f}) {
    int struck = 0;
    constexpr int kDraws = 20000;
    for (int i = 0; i < kDraws; ++i) {
      ChainInput c;
      c.position = i % 500;
      const SamplingParams params{
          .seed = uint64_t(i / 500), .xtc_probability = probability, .xtc_threshold = 0.2f};
      const bool here = left(x, params, c).size() < 3;
      struck += here;
      const NoiseKey key{params.seed, uint32_t(c.position), 0, NoiseDomain::kXtc};
      ASSERT_EQ(here, uniform_of(noise_pair(key, 0).even) < double(probability));
    }
    const double sigma = std::sqrt(kDraws * double(probability) * (1 - double(probability)));
    EXPECT_NEAR(struck, kDraws * double(probability), 5 * sigma);
  }
}

// Whether XTC struck must say nothing about which token is chosen: among equal tokens that it leaves alone
// the draws stay uniform in both cases.
TEST(Filters, coin_of_xtc_does_not_bias_the_choice) {
  Row x(16, 0.0f);
  x[14] = x[15] = 2.5f;
  Sampler sampler(kPlainRows);
  int seen[2][14] = {};
  for (int i = 0; i < 60000; ++i) {
    const SamplingParams params{.seed = uint64_t(i), .xtc_probability = 0.5f, .xtc_threshold = 0.2f};
    const NoiseKey key{params.seed, 3, 0, NoiseDomain::kXtc};
    const bool struck = uniform_of(noise_pair(key, 0).even) < 0.5;
    const auto choice = sampler.choose({x, params, {}, {}, 3});
    if (choice->token < 14) ++seen[struck][choice->token];
  }
  for (const auto& counts : seen) {
    double total = 0, chi_square = 0;
    for (const int n : counts)
      total += n;
    for (const int n : counts)
      chi_square += (n - total / 14) * (n - total / 14) / (total / 14);
    EXPECT_LT(chi_square, 54.0) << "13 degrees of freedom, 1e-6 quantile";
  }
}

// ---- dynamic temperature

TEST(Filters, dynamic_temperature_follows_the_entropy) {
  for (const Row& x : rows()) {
    const std::vector<double> p = probabilities(x);
    const double share = entropy_of(p) / std::log(double(x.size()));
    for (const float exponent : {0.5f, 1.0f, 3.0f}) {
      const SamplingParams params{.temperature = 0.8f, .dynatemp_range = 0.6f, .dynatemp_exponent = exponent};
      const double t = 0.2 + 1.2 * std::pow(share, double(exponent));
      const Row y = chained(x, params);
      for (size_t i = 0; i < x.size(); i += 13)
        ASSERT_NEAR(double(y[i]), double(x[i]) / t, 1e-5 * std::fabs(double(x[i]) / t) + 1e-6) << t;
    }
  }
}

TEST(Filters, dynamic_temperature_at_its_ends) {
  const Row flat(32, 4.0f);
  EXPECT_NEAR(chained(flat, {.temperature = 1, .dynatemp_range = 0.5f})[0], 4 / 1.5f, 1e-5);
  Row sure(32, -90.0f);
  sure[4] = 8;
  EXPECT_NEAR(chained(sure, {.temperature = 1, .dynatemp_range = 0.5f})[4], 16.0f, 1e-3);
  // More range than temperature: the divisor stays above 0.
  const Row y = chained(sure, {.temperature = 0.5f, .dynatemp_range = 2});
  EXPECT_EQ(left_in(y).size(), 32u);
  for (const float v : y)
    EXPECT_TRUE(std::isfinite(v));
  EXPECT_EQ(chained(sure, {.temperature = 0, .dynatemp_range = 1}), sure);
}

// ---- mirostat

TEST(Filters, mirostat_2_keeps_surprises_up_to_mu) {
  for (const Row& x : rows()) {
    const std::vector<double> p = probabilities(x);
    for (const double mu : {-3.0, 0.5, 4.01, 9.77, 40.0}) {
      ChainInput c;
      c.mu = mu;
      Ids expected;
      size_t best = 0;
      for (size_t i = 0; i < p.size(); ++i) {
        if (-std::log2(p[i]) <= mu) expected.insert(int32_t(i));
        if (p[i] > p[best]) best = i;
      }
      expected.insert(int32_t(best));
      EXPECT_EQ(left(x, {.mirostat = 2}, c), expected) << mu;
    }
  }
}

TEST(Filters, mirostat_1_keeps_the_estimated_number) {
  for (const Row& x : rows()) {
    std::vector<double> falling;
    for (const float v : x)
      falling.push_back(-double(v));
    const std::vector<int32_t> order = sorted_by(falling);
    const std::vector<double> p = probabilities(x);
    double products = 0, squares = 0;
    for (size_t i = 0; i < 99; ++i) {
      const double t = std::log(double(i + 2) / double(i + 1));
      products += t * std::log(p[size_t(order[i])] / p[size_t(order[i + 1])]);
      squares += t * t;
    }
    const double s = products / squares, e = s - 1;
    for (const double mu : {0.5, 5.0, 10.0, 14.0}) {
      const double k = std::pow(e * std::pow(2.0, mu) / (1 - std::pow(double(x.size()), -e)), 1 / s);
      ChainInput c;
      c.mu = mu;
      const double expected = std::clamp(k, 1.0, double(x.size()));
      const Ids kept = left(x, {.mirostat = 1}, c);
      EXPECT_NEAR(double(kept.size()), std::floor(expected), 1 + 1e-6 * expected) << mu << " " << k;
      EXPECT_EQ(kept, Ids(order.begin(), order.begin() + ptrdiff_t(kept.size())));
    }
  }
}

TEST(Filters, mirostat_1_survives_odd_distributions) {
  for (const double mu : {-1e6, -5.0, 0.0, 10.0, 1e6}) {
    ChainInput c;
    c.mu = mu;
    EXPECT_GE(left(Row(300, 1.0f), {.mirostat = 1}, c).size(), 1u);
    Row cliff(300, -3e38f);
    cliff[5] = 3e38f;
    EXPECT_EQ(left(cliff, {.mirostat = 1}, c), (Ids{5}));
    EXPECT_EQ(left({4.0f}, {.mirostat = 1}, c), (Ids{0}));
    EXPECT_EQ(left({4.0f, 3.0f}, {.mirostat = 1}, c).contains(0), true);
    EXPECT_EQ(left({4.0f, 3.0f}, {.mirostat = 2}, c).contains(0), true);
  }
}

TEST(Filters, mirostat_holds_the_mean_surprise_near_tau) {
  Row x(400);
  for (size_t i = 0; i < x.size(); ++i)
    x[i * 7 % x.size()] = -1.2f * std::log(float(i + 1));
  const std::vector<double> p = probabilities(x);
  for (const int32_t version : {1, 2}) {
    for (const float tau : {3.0f, 4.5f}) {
      const SamplingParams params{.seed = 5, .mirostat = version, .mirostat_tau = tau, .mirostat_eta = 0.1f};
      Sampler sampler(kPlainRows);
      double mu = mirostat_start(params), sum = 0;
      EXPECT_EQ(mu, 2 * double(tau));
      constexpr int kTokens = 3000;
      for (int i = 0; i < kTokens; ++i) {
        const auto choice = sampler.choose(
            {.logits = x, .params = params, .counts = {}, .mask = {}, .position = i, .mirostat_mu = mu});
        const double surprise = -std::log2(p[size_t(choice->token)]);
        EXPECT_NEAR(choice->mirostat_mu, mu - 0.1 * (surprise - double(tau)), 1e-4);
        mu = choice->mirostat_mu;
        if (i >= 200) sum += surprise / (kTokens - 200);
      }
      EXPECT_NEAR(sum, double(tau), 0.03) << version;
    }
  }
}

TEST(Filters, mirostat_takes_the_place_of_the_filters) {
  const Row x = random_row(400, 3, 5.0f);
  ChainInput c;
  c.mu = 7;
  const SamplingParams alone{.mirostat = 2};
  const SamplingParams with{.top_k = 2,
                            .top_p = 0.1f,
                            .min_p = 0.9f,
                            .typical_p = 0.1f,
                            .top_n_sigma = 0.1f,
                            .xtc_probability = 1,
                            .mirostat = 2};
  EXPECT_EQ(chained(x, with, c), chained(x, alone, c));
  EXPECT_EQ(chained(x, {.temperature = 0, .mirostat = 2}, c), x) << "the argmax needs neither";
}

// ---- properties of all

struct Named {
  const char* name;
  SamplingParams params;
};
std::vector<Named> each_filter() {
  return {{"top_k", {.top_k = 5}},
          {"top_p", {.top_p = 0.6f}},
          {"min_p", {.min_p = 0.2f}},
          {"typical_p", {.typical_p = 0.4f}},
          {"top_n_sigma", {.top_n_sigma = 1.2f}},
          {"xtc", {.xtc_probability = 1, .xtc_threshold = 0.02f}},
          {"dynatemp", {.dynatemp_range = 0.5f}},
          {"mirostat 1", {.mirostat = 1}},
          {"mirostat 2", {.mirostat = 2}}};
}

TEST(Filters, masked_tokens_stay_out_and_one_candidate_stays) {
  for (const Named& f : each_filter()) {
    SCOPED_TRACE(f.name);
    for (uint32_t seed = 0; seed < 30; ++seed) {
      Row x = random_row(70 + seed, seed, 4.0f);
      ChainInput c;
      c.mu = seed % 2 ? 3 : -100;
      std::mt19937 random(seed);
      for (int i = 0; i < 4; ++i)
        c.mask.push_back(seed % 3 == 0 ? 0u : random());
      c.mask[1] |= 2;  // at least token 33
      x[40] = 30;
      const Row y = chained(x, f.params, c);
      EXPECT_GE(left_in(y).size(), 1u);
      for (const int32_t id : left_in(y))
        EXPECT_TRUE(c.mask[size_t(id) / 32] >> (id % 32) & 1) << id;
    }
    ChainInput only;
    only.mask = {0, 2, 0};
    EXPECT_EQ(left(random_row(96, 1, 4.0f), f.params, only), (Ids{33}));
  }
}

TEST(Filters, nothing_left_by_mask_and_bias_stays_nothing) {
  for (const Named& f : each_filter()) {
    ChainInput none;
    none.mask = {0};
    EXPECT_TRUE(left(Row(20, 1.0f), f.params, none).empty()) << f.name;
  }
}

// The candidates of a first filter are listed; the second must not see the difference between a list and a
// row in which the others are excluded.
TEST(Filters, lists_and_rows_give_the_same_bits) {
  for (const Row& x : rows()) {
    SamplingParams first{.top_k = 100};
    const Row row = chained(x, first);
    Row biased = x;
    ChainInput mask;
    mask.mask.assign(x.size() / 32 + 1, 0);
    for (const int32_t id : left_in(row))
      mask.mask[size_t(id) / 32] |= 1u << (id % 32);
    const std::string_view links[] = {"top_k", "temperature", "top_n_sigma", "typ_p",
                                      "top_p", "min_p",       "xtc"};
    SamplingParams second{.temperature = 0.7f,
                          .top_p = 0.8f,
                          .min_p = 0.01f,
                          .seed = 3,
                          .typical_p = 0.9f,
                          .top_n_sigma = 2.0f,
                          .xtc_probability = 1,
                          .xtc_threshold = 0.05f,
                          .dynatemp_range = 0.4f};
    second.chain = *chain_of(links);
    SamplingParams listed = second;
    listed.top_k = 100;
    const Row dense = chained(x, second, mask), sparse = chained(x, listed);
    ASSERT_EQ(left_in(dense), left_in(sparse));
    for (const int32_t id : left_in(dense))
      ASSERT_EQ(bits_of(dense[size_t(id)]), bits_of(sparse[size_t(id)])) << id;
    Sampler sampler(kPlainRows);
    for (int32_t position = 0; position < 20; ++position) {
      const auto a = sampler.choose({x, second, {}, mask.mask, position});
      const auto b = sampler.choose({x, listed, {}, {}, position});
      ASSERT_EQ(a->token, b->token);
    }
  }
}

TEST(Filters, draws_follow_what_the_chain_leaves) {
  const Row x = {0.0f, 1.0f, 2.0f, -1.0f, 0.5f, -30.0f, 1.5f, 0.25f};
  for (const Named& f : each_filter()) {
    SCOPED_TRACE(f.name);
    ChainInput c;
    c.mu = 3;
    const Row y = chained(x, f.params, c);
    const std::vector<double> p = probabilities(y);
    std::vector<int> seen(x.size());
    Sampler sampler(kPlainRows);
    constexpr int kDraws = 20000;
    for (int i = 0; i < kDraws; ++i) {
      SamplingParams params = f.params;
      params.seed = uint64_t(i) * 0x9E3779B97F4A7C15;
      const auto choice = sampler.choose(
          {.logits = x, .params = params, .counts = {}, .mask = {}, .position = i, .mirostat_mu = c.mu});
      ++seen[size_t(choice->token)];
    }
    double chi_square = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      if (p[i] * kDraws > 5)
        chi_square += (seen[i] - kDraws * p[i]) * (seen[i] - kDraws * p[i]) / (kDraws * p[i]);
      else if (p[i] == 0)
        EXPECT_EQ(seen[i], 0) << i;
    }
    EXPECT_LT(chi_square, 42.0);
  }
}

}  // namespace
}  // namespace invar
