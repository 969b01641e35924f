// Top-n-sigma (Tang et al. 2024): tokens stay whose logit is at most n standard deviations below the highest
// one. Mean and squared deviations of the candidates' logits in double, 16 lanes by id mod 16.
#include <algorithm>
#include <cmath>

#include "sampling/processor.h"
#include "tensor/exact_math.h"

namespace invar {
namespace {

template <class Term>
double lane_sum(Candidates& candidates, const Term& term) {
  LaneSum<double> sum;
  if (candidates.listed()) {
    for (const int32_t id : candidates.ids())
      sum.add(id, term(candidates[id]));
    return sum.total();
  }
  const std::span<const float> x = candidates.logits();
  const size_t whole = x.size() / 16 * 16;
  for (size_t i = 0; i < whole; i += 16)
    for (size_t l = 0; l < 16; ++l)
      sum.lanes()[l] = sum.lanes()[l] + (x[i + l] == kExcluded ? 0.0 : term(x[i + l]));
  for (size_t i = whole; i < x.size(); ++i)
    if (x[i] != kExcluded) sum.add(int32_t(i), term(x[i]));
  return sum.total();
}

}  // namespace

bool top_n_sigma_active(const ProcessorInput& in) {
  return in.params.top_n_sigma > 0.0f && in.params.temperature != 0.0f;
}

void top_n_sigma_apply(const ProcessorInput& in, Candidates& candidates) {
  const int32_t best = candidates.likeliest();
  if (best < 0) return;
  const double count = double(candidates.count());
  const double mean = lane_sum(candidates, [](float x) { return double(x); }) / count;
  const double squares = lane_sum(candidates, [mean](float x) {
    const double d = double(x) - mean;
    return d * d;
  });
  // sqrt is an operation of IEEE, rounded once.
  const double bound = double(candidates[best]) - double(in.params.top_n_sigma) * std::sqrt(squares / count);
  const float near = float(bound);  // may lie above it, but not by this much
  std::vector<int32_t>& ids = candidates.scratch_ids;
  candidates.at_least(near - abs_f32(near) * 0x1p-20f, &ids);
  std::erase_if(ids, [&](int32_t id) { return double(candidates[id]) < bound; });
  candidates.keep(ids);
}

}  // namespace invar
