// min_tokens: the ids that would end an answer too short, unless nothing else may be said.
#include <utility>
#include <vector>

#include "sampling/processor.h"

namespace invar {

bool min_tokens_active(const ProcessorInput& in) {
  return !in.not_yet.empty();
}

void min_tokens_apply(const ProcessorInput& in, Candidates& candidates) {
  std::vector<std::pair<int32_t, float>> before;
  const std::span<float> without = candidates.values();
  for (const int32_t token : in.not_yet)
    before.emplace_back(token, std::exchange(without[size_t(token)], kExcluded));
  if (candidates.likeliest() >= 0) return;
  // Backwards, so that an id that came twice gets back what it had.
  const std::span<float> restored = candidates.values();
  for (auto it = before.rbegin(); it != before.rend(); ++it)
    restored[size_t(it->first)] = it->second;
}

}  // namespace invar
