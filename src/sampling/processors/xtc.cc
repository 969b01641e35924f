// XTC, "exclude top choices" (p-e-w 2024): with some probability, of the tokens that have at least the
// threshold's probability all but the least probable one go. The coin is noise of its own domain, so it says
// nothing about the noise that chooses the token.
#include <algorithm>

#include "sampling/most_probable.h"
#include "sampling/processor.h"
#include "tensor/noise.h"

namespace invar {

bool xtc_active(const ProcessorInput& in) {
  return in.params.xtc_probability > 0.0f && in.params.temperature != 0.0f;
}

void xtc_apply(const ProcessorInput& in, Candidates& candidates) {
  const NoiseKey key{in.params.seed, uint32_t(in.position), in.params.sample_index, NoiseDomain::kXtc};
  if (uniform_of(noise_pair(key, 0).even) >= double(in.params.xtc_probability)) return;
  if (candidates.likeliest() < 0) return;

  const Softmax s = candidates.softmax();
  const float threshold = in.params.xtc_threshold;
  const float bound =
      threshold > 0 ? s.max + float(log64(double(threshold) * double(s.sum))) - kBandMargin : kExcluded;
  std::vector<int32_t>& top = candidates.scratch_ids;
  candidates.at_least(bound, &top);
  std::erase_if(top, [&](int32_t id) { return candidates.probability(id, s) < threshold; });
  if (top.size() < 2) return;
  const auto least = std::min_element(top.begin(), top.end(), [&](int32_t a, int32_t b) {
    const float pa = candidates.probability(a, s), pb = candidates.probability(b, s);
    return pa != pb ? pa < pb : a > b;
  });
  top.erase(least);
  if (!candidates.listed() && top.size() < 4096) {
    for (const int32_t id : top)
      candidates.exclude(id);
    return;
  }
  std::vector<int32_t> rest;
  candidates.at_least(kExcluded, &rest);
  std::vector<int32_t> left;
  std::set_difference(rest.begin(), rest.end(), top.begin(), top.end(), std::back_inserter(left));
  candidates.keep(left);
}

}  // namespace invar
