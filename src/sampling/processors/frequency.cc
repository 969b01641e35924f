// Frequency penalty: subtracts its multiple for every time a token was generated.
#include "sampling/processor.h"

namespace invar {

bool frequency_active(const ProcessorInput& in) {
  return in.params.frequency_penalty != 0.0f;
}

void frequency_apply(const ProcessorInput& in, Candidates& candidates) {
  const std::span<float> values = candidates.values();
  for (const TokenCounts::Entry& entry : in.counts.entries()) {
    float& x = values[size_t(entry.token)];
    if (entry.generated == 0 || x == kExcluded) continue;
    const float penalty = bounded(float(entry.generated) * in.params.frequency_penalty);
    x = bounded(x - penalty);
  }
}

}  // namespace invar
