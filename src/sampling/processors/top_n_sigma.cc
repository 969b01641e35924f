// Top-n-sigma (Tang et al. 2024): tokens stay whose logit is at most n standard deviations below the highest
// one. Mean and squared deviations of the candidates' logits in double, 16 lanes by id mod 16.
#include <algorithm>
#include <cmath>

#include "sampling/processor.h"
#include "tensor/exact_math.h"

namespace invar {

bool top_n_sigma_active(const ProcessorInput& in) {
  return in.params.top_n_sigma > 0.0f && in.params.temperature != 0.0f;
}

void top_n_sigma_apply(const ProcessorInput& in, Candidates& candidates) {
  const int32_t best = candidates.likeliest();
  if (best < 0) return;
  const double count = double(candidates.count());
  const double mean = candidates.sum() / count, squares = candidates.square_sum(mean);
  // sqrt is an operation of IEEE, rounded once.
  const double bound = double(candidates[best]) - double(in.params.top_n_sigma) * std::sqrt(squares / count);
  const float near = float(bound);  // may lie above it, but not by this much
  std::vector<int32_t>& ids = candidates.scratch_ids;
  candidates.at_least(near - abs_f32(near) * 0x1p-20f, &ids);
  std::erase_if(ids, [&](int32_t id) { return double(candidates[id]) < bound; });
  candidates.keep(ids);
}

}  // namespace invar
