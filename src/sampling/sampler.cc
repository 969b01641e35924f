#include "sampling/sampler.h"

#include <bit>
#include <limits>

#include "base/fp_environment.h"
#include "sampling/mirostat.h"
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

// The best token so far, and which others can still beat it.
class Race {
 public:
  // The most likely token first: from then on few others can still win.
  Race(std::span<const float> x, int32_t likeliest, const NoiseKey& key) : x_(x), best_(likeliest) {
    const NoisePair noise = noise_pair(key, uint32_t(likeliest) >> 1);
    top_ = double(x[size_t(likeliest)]);
    best_value_ = top_ + gumbel_of(likeliest & 1 ? noise.odd : noise.even);
  }
  bool reachable(int32_t token) const { return best_value_ - double(x_[size_t(token)]) <= kGumbelMax; }
  void consider(int32_t token, uint64_t r) {
    const double logit = double(x_[size_t(token)]);
    if (top_ - logit > kGumbelRange || noise_below(r, best_value_ - logit)) return;
    const double value = logit + gumbel_of(r);
    if (value > best_value_ || (value == best_value_ && token < best_)) {
      best_ = token;
      best_value_ = value;
    }
  }
  int32_t best() const { return best_; }

 private:
  std::span<const float> x_;
  int32_t best_;
  double top_, best_value_;
};

}  // namespace

int32_t gumbel_argmax(std::span<const float> x, int32_t likeliest, const NoiseKey& key) {
  Race race(x, likeliest, key);
  const int32_t n = int32_t(x.size());
  for (int32_t token = 0; token < n; token += 2) {
    const bool even = race.reachable(token), odd = token + 1 < n && race.reachable(token + 1);
    if (!even && !odd) continue;
    const NoisePair noise = noise_pair(key, uint32_t(token) >> 1);
    if (even) race.consider(token, noise.even);
    if (odd) race.consider(token + 1, noise.odd);
  }
  return race.best();
}

int32_t gumbel_argmax(std::span<const float> x, std::span<const int32_t> ids, int32_t likeliest,
                      const NoiseKey& key) {
  Race race(x, likeliest, key);
  for (const int32_t token : ids) {
    if (!race.reachable(token)) continue;
    const NoisePair noise = noise_pair(key, uint32_t(token) >> 1);
    race.consider(token, token & 1 ? noise.odd : noise.even);
  }
  return race.best();
}

void Sampler::run_chain(const SampleInput& in) {
  candidates_.reset(in.logits);
  const ProcessorInput input{in.params,  in.counts,   in.mask,       in.not_yet,
                             in.history, in.position, in.mirostat_mu};
  const auto run = [&](const Processor& processor) {
    if (!processor.active(input) || (processor.filter && in.params.mirostat != 0)) return;
    if (processor.apply == mirostat_apply && candidates_.likeliest() >= 0)
      before_mirostat_ = candidates_.softmax();
    processor.apply(input, candidates_);
  };
  const std::span<const Processor> all = processors();
  if (in.params.chain.empty())
    for (const Processor& processor : all)
      run(processor);
  else
    for (const uint8_t index : in.params.chain)
      run(all[index]);
}

double Sampler::next_mu(const SampleInput& in, int32_t token) const {
  if (in.params.mirostat == 0 || in.params.temperature == 0.0f) return in.mirostat_mu;
  const double distance = double(candidates_[token] - before_mirostat_.max);
  return mirostat_next(in.params, in.mirostat_mu, distance - log64(double(before_mirostat_.sum)));
}

std::span<const float> Sampler::process(const SampleInput& in) {
  const FpEnvironment contract;
  run_chain(in);
  return candidates_.resolved();
}

Result<Choice> Sampler::choose(const SampleInput& in) {
  const FpEnvironment contract;
  if (!rows_.all_finite(in.logits.data(), int64_t(in.logits.size())))
    return internal_error("the model gave a logit that is NaN or infinite");
  run_chain(in);
  Choice choice;
  choice.token = candidates_.likeliest();
  if (choice.token < 0)
    return invalid_argument(
        "no token is allowed: the guard's mask and logit_bias exclude the whole vocabulary");
  if (in.params.temperature != 0.0f) {
    const NoiseKey key{in.params.seed, uint32_t(in.position), in.params.sample_index, NoiseDomain::kToken};
    const auto x = candidates_.values();
    choice.token = candidates_.listed() ? gumbel_argmax(x, candidates_.ids(), choice.token, key)
                                        : gumbel_argmax(x, choice.token, key);
  }
  choice.mirostat_mu = next_mu(in, choice.token);
  if (in.params.logprobs >= 0) {
    logprobs_.compute(in.logits, rows_);
    choice.logprob = logprobs_.of(choice.token);
    logprobs_.top(in.params.logprobs, &choice.alternatives);
  }
  return choice;
}

}  // namespace invar
