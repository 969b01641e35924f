// Min-p: tokens stay whose probability is at least this fraction of the highest one.
#include "sampling/processors.h"

namespace invar {

bool min_p_active(const ProcessorInput& in) {
  return in.params.min_p > 0.0f && in.params.temperature != 0.0f;
}

void min_p_apply(const ProcessorInput& in, Candidates& candidates) {
  const std::span<float> x = candidates.x;
  const int64_t n = int64_t(x.size());
  std::vector<float>& weights = *candidates.weights;  // of the highest one: exp(0) = 1
  weights.resize(x.size());
  const float max = x[in.rows.argmax(x.data(), n)];
  if (max == kExcluded) return;
  in.rows.exp_sum(x.data(), n, max, weights.data());
  for (int64_t token = 0; token < n; ++token)
    if (weights[token] < in.params.min_p) x[token] = kExcluded;
}

}  // namespace invar
