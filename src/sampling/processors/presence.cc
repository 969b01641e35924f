// Presence penalty: subtracts once from every token that was generated.
#include "sampling/processor.h"

namespace invar {

bool presence_active(const ProcessorInput& in) {
  return in.params.presence_penalty != 0.0f;
}

void presence_apply(const ProcessorInput& in, Candidates& candidates) {
  const std::span<float> values = candidates.values();
  for (const TokenCounts::Entry& entry : in.counts.entries()) {
    float& x = values[size_t(entry.token)];
    if (entry.generated > 0 && x != kExcluded) x = bounded(x - in.params.presence_penalty);
  }
}

}  // namespace invar
