#pragma once
// What tests of sampling share: rows of logits, the chain's result, and distributions in double precision,
// written from the definitions and not from the code.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <vector>

#include "sampling/sampler.h"
#include "sampling/testing/plain_rows.h"

namespace invar {

using Row = std::vector<float>;
using Ids = std::set<int32_t>;

inline Row random_row(size_t n, uint32_t seed, float spread) {
  std::mt19937 random(seed);
  Row x(n);
  for (float& v : x)
    v = (float(random() % 1000000) / 500000.0f - 1.0f) * spread;
  return x;
}

// Few likely tokens over many unlikely ones, as language models have them.
inline Row peaked_row(size_t n, uint32_t seed) {
  Row x = random_row(n, seed, 3.0f);
  std::mt19937 random(seed + 1);
  for (size_t i = 0; i < 40; ++i)
    x[random() % n] += float(random() % 1000) * 0.015f;
  return x;
}

struct ChainInput {
  TokenCounts counts = {};
  std::vector<uint32_t> mask = {};
  std::vector<int32_t> history = {}, not_yet = {};
  double mu = 0;
  int32_t position = 0;
};

inline Row chained(const Row& logits, const SamplingParams& params, const ChainInput& c = {}) {
  EXPECT_TRUE(params.validate(int32_t(logits.size())).ok());
  Sampler sampler(kPlainRows);
  const auto x = sampler.process({.logits = logits,
                                  .params = params,
                                  .counts = c.counts,
                                  .mask = c.mask,
                                  .position = c.position,
                                  .history = c.history,
                                  .not_yet = c.not_yet,
                                  .mirostat_mu = c.mu});
  return Row(x.begin(), x.end());
}

inline Ids left_in(const Row& x) {
  Ids ids;
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i] != kExcluded) ids.insert(int32_t(i));
  return ids;
}

inline Ids left(const Row& logits, const SamplingParams& params, const ChainInput& c = {}) {
  return left_in(chained(logits, params, c));
}

// Softmax over what is not excluded.
inline std::vector<double> probabilities(const Row& x) {
  double max = -INFINITY, sum = 0;
  for (const float v : x)
    max = std::max(max, double(v));
  std::vector<double> p;
  for (const float v : x)
    sum += p.emplace_back(std::exp(double(v) - max));
  for (double& v : p)
    v /= sum;
  return p;
}

inline double entropy_of(const std::vector<double>& p) {
  double h = 0;
  for (const double v : p)
    if (v > 0) h -= v * std::log(v);
  return h;
}

// Ids by `key` ascending, equal ones by id.
inline std::vector<int32_t> sorted_by(const std::vector<double>& key) {
  std::vector<int32_t> ids(key.size());
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = int32_t(i);
  std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    return key[size_t(a)] != key[size_t(b)] ? key[size_t(a)] < key[size_t(b)] : a < b;
  });
  return ids;
}

}  // namespace invar
