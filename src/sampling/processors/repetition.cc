// Repetition penalty (Keskar et al. 2019): tokens of prompt and answer inside the window, once each.
#include "sampling/processor.h"

namespace invar {

bool repetition_active(const ProcessorInput& in) {
  return in.params.repetition_penalty != 1.0f;
}

void repetition_apply(const ProcessorInput& in, Candidates& candidates) {
  const float penalty = in.params.repetition_penalty;
  const std::span<float> values = candidates.values();
  for (const TokenCounts::Entry& entry : in.counts.entries()) {
    float& x = values[size_t(entry.token)];
    if (entry.of_prompt + entry.generated > 0 && x != kExcluded)
      x = bounded(x > 0 ? x / penalty : x * penalty);
  }
}

}  // namespace invar
