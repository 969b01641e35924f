// Repetition penalty (Keskar et al. 2019): tokens of prompt and answer, once each, away from being chosen.
#include "sampling/processors.h"

namespace invar {

bool repetition_active(const ProcessorInput& in) {
  return in.params.repetition_penalty != 1.0f;
}

void repetition_apply(const ProcessorInput& in, Candidates& candidates) {
  const float penalty = in.params.repetition_penalty;
  for (const TokenCounts::Entry& entry : in.counts.entries()) {
    float& x = candidates.x[entry.token];
    if (x != kExcluded) x = bounded(x > 0 ? x / penalty : x * penalty);
  }
}

}  // namespace invar
