// Min-p: tokens stay whose probability is at least this fraction of the highest one.
#include <algorithm>

#include "sampling/most_probable.h"
#include "sampling/processor.h"
#include "tensor/exact_math.h"

namespace invar {

bool min_p_active(const ProcessorInput& in) {
  return in.params.min_p > 0.0f && in.params.temperature != 0.0f;
}

void min_p_apply(const ProcessorInput& in, Candidates& candidates) {
  const int32_t best = candidates.likeliest();
  if (best < 0) return;
  const float max = candidates[best];
  std::vector<int32_t>& ids = candidates.scratch_ids;
  candidates.at_least(max + float(log64(double(in.params.min_p))) - kBandMargin, &ids);
  // Weights are relative to that of the highest one: exp(0) = 1.
  std::erase_if(ids, [&](int32_t id) { return exp_or_zero_f32(candidates[id] - max) < in.params.min_p; });
  candidates.keep(ids);
}

}  // namespace invar
