// Mirostat (Basu et al. 2021): cuts the tail so that the mean surprise of the chosen tokens, in bits, stays
// near tau. The cut follows mu, which the sequence keeps and every choice moves (mirostat.h). Version 1
// estimates Zipf's exponent of the distribution and from it how many tokens to keep; version 2 keeps those
// whose surprise is at most mu. The most likely token always stays.
#include "sampling/mirostat.h"

#include <algorithm>

#include "sampling/processor.h"
#include "tensor/exact_math.h"

namespace invar {
namespace {

constexpr double kLn2 = 0x1.62e42fefa39efp-1;
constexpr int32_t kRanks = 100;  // the most likely tokens from which the exponent is estimated

// log(p_i / p_j) is the difference of the logits. t_i = log((i + 2) / (i + 1)) over the ranks i.
double zipf_exponent(std::span<const int32_t> ranked, const Candidates& candidates) {
  double products = 0, squares = 0;
  for (size_t i = 0; i + 1 < ranked.size(); ++i) {
    const double t = log64(double(i + 2) / double(i + 1));
    products += t * (double(candidates[ranked[i]]) - double(candidates[ranked[i + 1]]));
    squares += t * t;
  }
  return products / squares;
}

// k = (e * 2^mu / (1 - N^-e))^(1/s), e = s - 1, as a logarithm: nothing overflows.
int32_t tokens_to_keep(double s, double mu, double vocab) {
  s = std::max(s, 0x1p-20);
  const double e = s - 1, log_n = log64(vocab);
  // e / (1 - N^-e) is positive on both sides of 0, where it is 1 / log N.
  const double tail = 1 - exp64(std::clamp(-e * log_n, -700.0, 700.0));
  const double factor = abs_f64(e) < 1e-9 ? 1 / log_n : std::clamp(e / tail, 1e-300, 1e300);
  const double log_k = (log64(factor) + mu * kLn2) / s;
  return int32_t(exp64(std::clamp(log_k, 0.0, log_n)));
}

void keep_v1(double mu, Candidates& candidates) {
  std::vector<int32_t>& ids = candidates.scratch_ids;
  candidates.highest(kRanks, &ids);
  if (ids.size() < 2) return;
  std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    return candidates[a] != candidates[b] ? candidates[a] > candidates[b] : a < b;
  });
  const double s = zipf_exponent(ids, candidates);
  const int32_t k = std::max(tokens_to_keep(s, mu, double(candidates.vocab())), 1);
  candidates.highest(k, &ids);
  candidates.keep(ids);
}

void keep_v2(double mu, Candidates& candidates) {
  const int32_t best = candidates.likeliest();
  const Softmax s = candidates.softmax();
  const double least = log64(double(s.sum)) - mu * kLn2;  // of x - max
  std::vector<int32_t>& ids = candidates.scratch_ids;
  candidates.at_least(s.max + float(least) - 0.0625f, &ids);
  std::erase_if(ids, [&](int32_t id) { return id != best && double(candidates[id] - s.max) < least; });
  if (ids.empty()) ids.push_back(best);
  candidates.keep(ids);
}

}  // namespace

double mirostat_start(const SamplingParams& params) {
  return 2 * double(params.mirostat_tau);
}

double mirostat_next(const SamplingParams& params, double mu, double log_probability) {
  const double surprise = -log_probability / kLn2;
  return mu - double(params.mirostat_eta) * (surprise - double(params.mirostat_tau));
}

bool mirostat_active(const ProcessorInput& in) {
  return in.params.mirostat != 0 && in.params.temperature != 0.0f;
}

void mirostat_apply(const ProcessorInput& in, Candidates& candidates) {
  if (candidates.likeliest() < 0) return;
  in.params.mirostat == 1 ? keep_v1(in.mirostat_mu, candidates) : keep_v2(in.mirostat_mu, candidates);
}

}  // namespace invar
