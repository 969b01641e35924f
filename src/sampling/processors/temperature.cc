// Temperature: divides; 0 means the plain argmax and leaves the logits alone.
#include "sampling/processors.h"

namespace invar {

bool temperature_active(const ProcessorInput& in) {
  return in.params.temperature != 0.0f && in.params.temperature != 1.0f;
}

void temperature_apply(const ProcessorInput& in, Candidates& candidates) {
  const float temperature = in.params.temperature;
  for (float& x : candidates.x)
    x = x == kExcluded ? kExcluded : bounded(x / temperature);
}

}  // namespace invar
