#include "sampling/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>

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

// The best token so far. It starts with a likely one: from then on few others can still win.
class Race {
 public:
  Race(std::span<const float> x, int32_t first, const NoiseKey& key)
      : x_(x),
        key_(key),
        best_(first),
        best_value_(double(x[size_t(first)]) + gumbel_of(noise_bits(key, first))) {}
  void consider(int32_t token) {
    const double logit = double(x_[size_t(token)]), needed = best_value_ - logit;
    if (needed > kGumbelMax) return;
    const uint64_t r = noise_bits(key_, token);
    if (noise_below(r, needed)) return;
    const double value = logit + gumbel_of(r);
    if (value > best_value_ || (value == best_value_ && token < best_)) {
      best_ = token;
      best_value_ = value;
    }
  }
  int32_t best() const { return best_; }
  // What a token must reach, or a little less.
  float bound() const {
    const float nearest = float(best_value_);
    return double(nearest) <= best_value_ ? nearest : std::nextafter(nearest, kExcluded);
  }

 private:
  std::span<const float> x_;
  const NoiseKey& key_;
  int32_t best_;
  double best_value_;
};

}  // namespace

int32_t gumbel_argmax(std::span<const float> x, int32_t first, const NoiseKey& key, const RowKernels& rows) {
  constexpr int32_t kChunk = 4096;
  int32_t ids[kChunk];
  Race race(x, first, key);
  const int32_t n = int32_t(x.size());
  // Small chunks first: the more tokens were met, the fewer can still win.
  for (int32_t begin = 0, chunk = 64; begin < n; begin += chunk, chunk = std::min(2 * chunk, kChunk)) {
    const int32_t end = std::min(n, begin + chunk);
    const int32_t count = rows.contenders(x.data(), begin, end, key, race.bound(), ids);
    for (const int32_t token : std::span(ids, size_t(count)))
      race.consider(token);
  }
  return race.best();
}

int32_t gumbel_argmax(std::span<const float> x, std::span<const int32_t> ids, int32_t first,
                      const NoiseKey& key) {
  Race race(x, first, key);
  for (const int32_t token : ids)
    race.consider(token);
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
  const bool drawn = in.params.temperature != 0.0f;
  choice.token = drawn ? candidates_.likely() : candidates_.likeliest();
  if (choice.token < 0)
    return invalid_argument(
        "no token is allowed: the guard's mask and logit_bias exclude the whole vocabulary");
  if (drawn) {
    const NoiseKey key{in.params.seed, uint32_t(in.position), in.params.sample_index, NoiseDomain::kToken};
    const auto x = candidates_.logits();
    choice.token = candidates_.listed() ? gumbel_argmax(x, candidates_.ids(), choice.token, key)
                                        : gumbel_argmax(x, choice.token, key, rows_);
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
