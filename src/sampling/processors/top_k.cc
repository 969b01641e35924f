// Top-k: the k highest stay, equal ones by the lowest id.
#include <algorithm>

#include "sampling/processors.h"

namespace invar {

bool top_k_active(const ProcessorInput& in) {
  return in.params.top_k > 0 && in.params.temperature != 0.0f;
}

void top_k_apply(const ProcessorInput& in, Candidates& candidates) {
  const std::span<float> x = candidates.x;
  std::vector<int32_t>& order = *candidates.order;
  order.clear();
  for (size_t token = 0; token < x.size(); ++token)
    if (x[token] != kExcluded) order.push_back(int32_t(token));
  const size_t k = size_t(in.params.top_k);
  if (k >= order.size()) return;
  std::nth_element(order.begin(), order.begin() + k, order.end(),
                   [&](int32_t a, int32_t b) { return x[a] != x[b] ? x[a] > x[b] : a < b; });
  for (size_t i = k; i < order.size(); ++i)
    x[order[i]] = kExcluded;
}

}  // namespace invar
