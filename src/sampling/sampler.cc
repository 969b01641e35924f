#include "sampling/sampler.h"

#include <bit>
#include <limits>

#include "base/fp_environment.h"
#include "sampling/processor.h"

namespace invar {
namespace {

// True only if the noise of these bits is certainly below `needed`: -log(u) >= 1 - u >= 2^(e - 52) with e the
// highest set bit of the cells above u, so G <= (52 - e) ln 2. Saves both logarithms for nearly every token.
bool noise_below(uint64_t r, double needed) {
  const uint64_t above = (uint64_t{1} << 52) - 1 - (r >> 12);
  if (above == 0) return false;
  const int e = 63 - std::countl_zero(above);
  return (52 - e) * 0.6931471805599453 + 1e-6 < needed;
}

}  // namespace

int32_t gumbel_argmax(std::span<const float> x, int32_t likeliest, const NoiseKey& key) {
  // The most likely token first: from then on few others can still win.
  int32_t best = likeliest;
  const NoisePair first = noise_pair(key, uint32_t(best) >> 1);
  const double top = double(x[best]);
  double best_value = top + gumbel_of(best & 1 ? first.odd : first.even);

  const auto consider = [&](int32_t token, uint64_t r) {
    const double logit = double(x[token]);
    if (top - logit > kGumbelRange || noise_below(r, best_value - logit)) return;
    const double value = logit + gumbel_of(r);
    if (value > best_value || (value == best_value && token < best)) {
      best = token;
      best_value = value;
    }
  };
  const auto reachable = [&](int32_t token) { return best_value - double(x[token]) <= kGumbelMax; };
  const int32_t n = int32_t(x.size());
  for (int32_t token = 0; token < n; token += 2) {
    const bool even = reachable(token), odd = token + 1 < n && reachable(token + 1);
    if (!even && !odd) continue;
    const NoisePair noise = noise_pair(key, uint32_t(token) >> 1);
    if (even) consider(token, noise.even);
    if (odd) consider(token + 1, noise.odd);
  }
  return best;
}

std::span<const float> Sampler::process(const SampleInput& in) {
  x_.assign(in.logits.begin(), in.logits.end());
  Candidates candidates{x_, &weights_, &order_};
  const ProcessorInput input{in.params, in.counts, in.mask, rows_};
  for (const Processor& processor : processors())
    if (processor.active(input)) processor.apply(input, candidates);
  return x_;
}

Result<Choice> Sampler::choose(const SampleInput& in) {
  const FpEnvironment contract;
  if (!rows_.all_finite(in.logits.data(), int64_t(in.logits.size())))
    return internal_error("the model gave a logit that is NaN or infinite");
  const std::span<const float> x = process(in);
  Choice choice;
  choice.token = int32_t(rows_.argmax(x.data(), int64_t(x.size())));
  if (x.empty() || x[choice.token] == kExcluded)
    return invalid_argument(
        "no token is allowed: the guard's mask and logit_bias exclude the whole vocabulary");
  if (in.params.temperature != 0.0f) {
    choice.token =
        gumbel_argmax(x, choice.token,
                      {in.params.seed, uint32_t(in.position), in.params.sample_index, NoiseDomain::kToken});
  }
  if (in.params.logprobs >= 0) {
    logprobs_.compute(in.logits, rows_);
    choice.logprob = logprobs_.of(choice.token);
    logprobs_.top(in.params.logprobs, &choice.alternatives);
  }
  return choice;
}

}  // namespace invar
