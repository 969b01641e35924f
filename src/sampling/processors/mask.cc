// Excludes what the guard does not allow.
#include "sampling/processor.h"

namespace invar {

bool mask_active(const ProcessorInput& in) {
  return !in.mask.empty();
}

void mask_apply(const ProcessorInput& in, Candidates& candidates) {
  const std::span<float> x = candidates.values();
  for (size_t token = 0; token < x.size(); ++token)
    if ((in.mask[token / 32] >> (token % 32) & 1) == 0) x[token] = kExcluded;
}

}  // namespace invar
