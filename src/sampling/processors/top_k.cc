// Top-k: the k highest stay, equal ones by the lowest id.
#include "sampling/processor.h"

namespace invar {

bool top_k_active(const ProcessorInput& in) {
  return in.params.top_k > 0 && in.params.temperature != 0.0f;
}

void top_k_apply(const ProcessorInput& in, Candidates& candidates) {
  if (in.params.top_k >= candidates.vocab()) return;
  candidates.highest(in.params.top_k, &candidates.scratch_ids);
  candidates.keep(candidates.scratch_ids);
}

}  // namespace invar
