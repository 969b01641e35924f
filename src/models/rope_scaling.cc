#include "models/rope_scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/fp_environment.h"
#include "tensor/exact_math.h"

namespace invar {
namespace {

constexpr double kPi = 0x1.921fb54442d18p1;

Status check_range(const char* name, double value, double low, double high) {
  if (value >= low && value <= high) return {};
  return invalid_argument(fmt::format("{} is {}, not between {} and {}", name, value, low, high));
}

Status check(double theta, int32_t dim, const RopeScaling& s, std::span<const float> divisors) {
  if (dim < 2 || dim % 2 != 0)
    return invalid_argument(fmt::format("the rotary dimension is {}, not even", dim));
  if (!(theta > 1)) return invalid_argument(fmt::format("rope_theta is {}, not above 1", theta));
  if (!(theta <= static_cast<double>(1e30f)))  // flags and GGUF files have floats
    return invalid_argument(fmt::format("rope_theta is {}, not between 1 and 1e+30", theta));
  if (!divisors.empty() && divisors.size() != static_cast<size_t>(dim / 2))
    return invalid_argument(
        fmt::format("{} frequency divisors for {} frequencies", divisors.size(), dim / 2));
  for (const float d : divisors)
    if (!(d > 0 && std::isfinite(d)))
      return invalid_argument(fmt::format("a frequency divisor is {}, not positive and finite", d));
  if (s.rule == RopeRule::kPlain) return {};
  RETURN_IF_ERROR(check_range("rope factor", s.factor, 0x1p-20, 0x1p20));
  if (s.rule == RopeRule::kLinear) return {};
  if (s.rule == RopeRule::kProportional) return check_range("partial_rotary_factor", s.proportion, 0, 1);
  RETURN_IF_ERROR(check_range("original_max_position_embeddings", s.original_context, 1, 0x1p24));
  if (s.rule == RopeRule::kLlama3) {
    RETURN_IF_ERROR(check_range("low_freq_factor", s.low_freq_factor, 0x1p-20, 0x1p20));
    RETURN_IF_ERROR(check_range("high_freq_factor", s.high_freq_factor, 0x1p-20, 0x1p20));
    if (!(s.high_freq_factor > s.low_freq_factor))
      return invalid_argument("high_freq_factor is not above low_freq_factor");
    return {};
  }
  RETURN_IF_ERROR(check_range("attention_factor", s.attention_factor.value_or(1), 0x1p-20, 0x1p20));
  if (s.rule == RopeRule::kLongrope) {
    for (const auto& [name, list] :
         {std::pair{"short_factor", &s.short_factor}, {"long_factor", &s.long_factor}}) {
      if (list->size() != static_cast<size_t>(dim / 2))
        return invalid_argument(
            fmt::format("{} has {} elements for {} frequencies", name, list->size(), dim / 2));
      for (const float f : *list)
        RETURN_IF_ERROR(check_range(name, static_cast<double>(f), 0.5, 0x1p40));
    }
    return {};
  }
  RETURN_IF_ERROR(check_range("beta_fast", s.beta_fast, 0x1p-20, 0x1p20));
  RETURN_IF_ERROR(check_range("beta_slow", s.beta_slow, 0x1p-20, 0x1p20));
  RETURN_IF_ERROR(check_range("mscale", s.mscale.value_or(1), 0, 0x1p20));
  return check_range("mscale_all_dim", s.mscale_all_dim.value_or(1), 0, 0x1p20);
}

// base^(2i/dim) and its inverse, the plain frequency.
float power(float base, int32_t i, int32_t dim) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
  return static_cast<float>(exp64(static_cast<double>(exponent) * log64(static_cast<double>(base))));
}

float llama3(float f, const RopeScaling& s) {
  const auto factor = static_cast<float>(s.factor), low = static_cast<float>(s.low_freq_factor);
  const auto old = static_cast<float>(s.original_context);
  const auto low_wavelength = static_cast<float>(s.original_context / s.low_freq_factor);
  const auto high_wavelength = static_cast<float>(s.original_context / s.high_freq_factor);
  const auto range = static_cast<float>(s.high_freq_factor - s.low_freq_factor);
  const float wavelength = static_cast<float>(2 * kPi) / f;
  const float scaled = wavelength > low_wavelength ? f / factor : f;
  if (wavelength < high_wavelength || wavelength > low_wavelength) return scaled;
  const float smooth = (old / wavelength - low) / range;
  const float far = ((1.0f - smooth) * scaled) / factor, near = smooth * scaled;
  return far + near;
}

struct Ramp {
  float start, width;
};
// The pairs between which yarn goes from keeping a frequency to dividing it.
Ramp yarn_ramp(double theta, int32_t dim, const RopeScaling& s) {
  const auto pair_of = [&](double rotations) {
    return dim * log64(s.original_context / (rotations * 2 * kPi)) / (2 * log64(theta));
  };
  double low = pair_of(s.beta_fast), high = pair_of(s.beta_slow);
  if (s.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  return {static_cast<float>(low), static_cast<float>(high - low)};
}

float yarn(float f, float power, int32_t i, Ramp ramp, float factor) {
  const float divided = 1.0f / (factor * power);
  const float position = (static_cast<float>(i) - ramp.start) / ramp.width;
  const float keep = 1.0f - std::min(std::max(position, 0.0f), 1.0f);
  const float a = divided * (1.0f - keep), b = f * keep;
  return a + b;
}

double yarn_attention(const RopeScaling& s) {
  const auto magnitude = [&](double m) { return s.factor <= 1 ? 1.0 : 0.1 * m * log64(s.factor) + 1.0; };
  if (s.attention_factor) return *s.attention_factor;
  if (s.mscale.value_or(0) != 0 && s.mscale_all_dim.value_or(0) != 0)
    return magnitude(*s.mscale) / magnitude(*s.mscale_all_dim);
  return magnitude(1);
}

double longrope_attention(const RopeScaling& s) {
  if (s.attention_factor) return *s.attention_factor;
  return s.factor <= 1 ? 1.0 : std::sqrt(1.0 + log64(s.factor) / log64(s.original_context));
}

// A frequency above 2 would carry the angles of long contexts out of the range in which sine and cosine are
// exact (below 2^24).
Status check_frequency(int32_t i, float f, float most) {
  if (f >= 0 && f <= most) return {};
  return invalid_argument(fmt::format("rotary frequency {} is {}, not between 0 and {}", i, f, most));
}

}  // namespace

Result<Rope> make_rope(double theta, int32_t dim, const RopeScaling& scaling,
                       std::span<const float> divisors) {
  const FpEnvironment contract;
  RETURN_IF_ERROR(check(theta, dim, scaling, divisors));
  const auto base = static_cast<float>(theta);
  Rope rope{.dim = dim, .inv_freq = std::vector<float>(static_cast<size_t>(dim / 2))};
  Ramp ramp{0, 1};
  if (scaling.rule == RopeRule::kYarn) {
    ramp = yarn_ramp(static_cast<double>(base), dim, scaling);
    rope.attention_factor = static_cast<float>(yarn_attention(scaling));
    rope.scaled = true;
  }
  if (scaling.rule == RopeRule::kLongrope) {
    rope.attention_factor = static_cast<float>(longrope_attention(scaling));
    rope.scaled = true;
    rope.short_context = static_cast<int32_t>(scaling.original_context);
    rope.long_inv_freq.resize(rope.inv_freq.size());
  }
  for (int32_t i = 0; i < dim / 2; ++i) {
    const float p = power(base, i, dim);
    float f = 1.0f / p;
    switch (scaling.rule) {
      case RopeRule::kPlain:
        break;
      case RopeRule::kLinear:
        f = f / static_cast<float>(scaling.factor);
        break;
      case RopeRule::kLlama3:
        f = llama3(f, scaling);
        break;
      case RopeRule::kYarn:
        f = yarn(f, p, i, ramp, static_cast<float>(scaling.factor));
        break;
      case RopeRule::kProportional:
        f = i < static_cast<int32_t>(scaling.proportion * dim / 2) ? f / static_cast<float>(scaling.factor)
                                                                   : 0;
        break;
      case RopeRule::kLongrope: {
        const auto k = static_cast<size_t>(i);
        f = 1.0f / (scaling.short_factor[k] * p);
        rope.long_inv_freq[k] = 1.0f / (scaling.long_factor[k] * p);
        RETURN_IF_ERROR(check_frequency(i, rope.long_inv_freq[k], 2));
        break;
      }
    }
    if (!divisors.empty()) {
      const float divisor = divisors[static_cast<size_t>(i)];
      f = divisor < 1e30f ? f / divisor : 0;
    }
    RETURN_IF_ERROR(check_frequency(i, f, scaling.rule == RopeRule::kLongrope ? 2 : 1));
    rope.inv_freq[static_cast<size_t>(i)] = f;
  }
  return rope;
}

}  // namespace invar
