// Logit bias: adds to single tokens, in the order given; -infinity excludes.
#include "sampling/processor.h"

namespace invar {

bool bias_active(const ProcessorInput& in) {
  return !in.params.logit_bias.empty();
}

void bias_apply(const ProcessorInput& in, Candidates& candidates) {
  const std::span<float> x_of = candidates.values();
  for (const auto& [token, bias] : in.params.logit_bias) {
    float& x = x_of[size_t(token)];
    if (x != kExcluded) x = bias == kExcluded ? kExcluded : bounded(x + bias);
  }
}

}  // namespace invar
