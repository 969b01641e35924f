// Top-p (Holtzman et al. 2020): the most probable tokens stay until they hold p together, the one that
// reaches it included. Probabilities are those of what earlier links left.
#include <algorithm>

#include "sampling/processors.h"

namespace invar {

bool top_p_active(const ProcessorInput& in) {
  return in.params.top_p < 1.0f && in.params.temperature != 0.0f;
}

void top_p_apply(const ProcessorInput& in, Candidates& candidates) {
  const std::span<float> x = candidates.x;
  const int64_t n = int64_t(x.size());
  std::vector<float>& p = *candidates.weights;
  p.resize(x.size());
  if (x[in.rows.argmax(x.data(), n)] == kExcluded) return;
  in.rows.softmax(x.data(), n, p.data());

  std::vector<int32_t>& order = *candidates.order;
  order.clear();
  for (int64_t token = 0; token < n; ++token) {
    if (x[token] != kExcluded) order.push_back(int32_t(token));
  }
  const auto before = [&](int32_t a, int32_t b) { return p[a] != p[b] ? p[a] > p[b] : a < b; };

  // Sorted piece by piece, because most mass usually sits in few tokens.
  double held = 0;
  size_t kept = 0;
  for (size_t piece = 256; kept < order.size(); piece *= 4) {
    const size_t end = std::min(kept + piece, order.size());
    if (end < order.size()) std::nth_element(order.begin() + kept, order.begin() + end, order.end(), before);
    std::sort(order.begin() + kept, order.begin() + end, before);
    while (kept < end) {
      held += double(p[order[kept++]]);
      if (held >= double(in.params.top_p)) {
        for (size_t i = kept; i < order.size(); ++i)
          x[order[i]] = kExcluded;
        return;
      }
    }
  }
}

}  // namespace invar
