// Locally typical sampling (Meister et al. 2022): the tokens whose information is nearest to the entropy stay
// until they hold p together, the one that reaches it included. With d = RN(x - max) and D the mean of d,
// that distance is |d - D|: the logarithm of the sum, part of both, cancels. Equal ones by the lowest id.
#include <limits>

#include "sampling/most_probable.h"
#include "sampling/processor.h"
#include "tensor/exact_math.h"

namespace invar {

bool typical_p_active(const ProcessorInput& in) {
  return in.params.typical_p < 1.0f && in.params.temperature != 0.0f;
}

void typical_p_apply(const ProcessorInput& in, Candidates& candidates) {
  if (candidates.likeliest() < 0) return;
  const double mean = candidates.mean_distance();
  const Softmax s = candidates.softmax();
  const auto distance = [&](int32_t id) { return abs_f64(double(candidates[id] - s.max) - mean); };
  std::vector<int32_t>& ids = candidates.scratch_ids;
  const auto cut = [&](float bound, double certain) {
    candidates.at_least(bound, &ids);
    return cut_behind_mass(
        ids, double(in.params.typical_p),
        [&](int32_t a, int32_t b) {
          const double da = distance(a), db = distance(b);
          return da != db ? da < db : a < b;
        },
        [&](int32_t id) { return double(candidates.probability(id, s)); },
        [&](int32_t id) { return distance(id) <= certain; });
  };
  // What is missing lies below the bound, more than the band (less what rounding moves) away from the mean.
  for (const float band : kBands)
    if (cut(s.max + float(mean) - band, double(band - kBandMargin))) return candidates.keep(ids);
  if (cut(kExcluded, double(std::numeric_limits<float>::infinity()))) candidates.keep(ids);
}

}  // namespace invar
