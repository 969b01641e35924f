// Top-p (Holtzman et al. 2020): the most probable tokens stay until they hold p together, the one that
// reaches it included. Probabilities are those of what earlier links left.
#include <limits>

#include "sampling/most_probable.h"
#include "sampling/processor.h"

namespace invar {

bool top_p_active(const ProcessorInput& in) {
  return in.params.top_p < 1.0f && in.params.temperature != 0.0f;
}

void top_p_apply(const ProcessorInput& in, Candidates& candidates) {
  if (candidates.likeliest() < 0) return;
  const Softmax s = candidates.softmax();
  std::vector<int32_t>& ids = candidates.scratch_ids;
  std::vector<float>& p = candidates.scratch;
  p.resize(size_t(candidates.vocab()));
  const auto cut = [&](float bound, float certain) {
    candidates.at_least(bound, &ids);
    for (const int32_t id : ids)
      p[size_t(id)] = candidates.probability(id, s);
    return cut_behind_mass(
        ids, double(in.params.top_p),
        [&](int32_t a, int32_t b) {
          return p[size_t(a)] != p[size_t(b)] ? p[size_t(a)] > p[size_t(b)] : a < b;
        },
        [&](int32_t id) { return double(p[size_t(id)]); },
        [&](int32_t id) { return candidates[id] >= certain; });
  };
  for (const float band : kBands)
    if (cut(s.max - band, s.max - band + kBandMargin)) return candidates.keep(ids);
  // Without success even here, rounding keeps the sum of all below p: all stay.
  if (cut(kExcluded, kExcluded)) candidates.keep(ids);
}

}  // namespace invar
