// Temperature: divides; 0 means the plain argmax and leaves the logits alone. Dynamic temperature: the
// divisor moves from temperature - range to temperature + range as the entropy, relative to the highest
// possible one, goes from 0 to 1 (to the power of an exponent).
#include <algorithm>

#include "sampling/processor.h"
#include "tensor/exact_math.h"

namespace invar {
namespace {

float divisor(const SamplingParams& p, Candidates& candidates) {
  if (p.dynatemp_range == 0.0f) return p.temperature;
  const int32_t count = candidates.count();
  if (count < 2) return p.temperature;
  const double mean = candidates.mean_distance();
  const double entropy = log64(double(candidates.softmax().sum)) - mean;
  const double share = std::clamp(entropy / log64(double(count)), 0x1p-60, 1.0);
  const double power = exp64(double(p.dynatemp_exponent) * log64(share));
  const double low = std::max(0.0, double(p.temperature) - double(p.dynatemp_range));
  const double high = double(p.temperature) + double(p.dynatemp_range);
  return std::max(float(low + (high - low) * power), kMinTemperature);
}

}  // namespace

bool temperature_active(const ProcessorInput& in) {
  const SamplingParams& p = in.params;
  return p.temperature != 0.0f && (p.temperature != 1.0f || p.dynatemp_range != 0.0f);
}

void temperature_apply(const ProcessorInput& in, Candidates& candidates) {
  candidates.divide(divisor(in.params, candidates));
}

}  // namespace invar
