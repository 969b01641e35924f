#include "sampling/params.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "sampling/processor.h"

namespace invar {
namespace {

Status out_of_range(const char* field, float value, const char* allowed) {
  return invalid_argument(fmt::format("{}: {} is not {}", field, value, allowed));
}

constexpr float kNoBound = std::numeric_limits<float>::max();

// Values between two finite numbers, both included.
struct Range {
  const char* field;
  float SamplingParams::* value;
  float min, max;
  const char* allowed;
};
constexpr Range kRanges[] = {
    {"min_p", &SamplingParams::min_p, 0, 1, "in [0, 1]"},
    {"presence_penalty", &SamplingParams::presence_penalty, -kNoBound, kNoBound, "a finite number"},
    {"frequency_penalty", &SamplingParams::frequency_penalty, -kNoBound, kNoBound, "a finite number"},
    {"top_n_sigma", &SamplingParams::top_n_sigma, 0, kNoBound, "0 or a positive number"},
    {"xtc_probability", &SamplingParams::xtc_probability, 0, 1, "in [0, 1]"},
    {"xtc_threshold", &SamplingParams::xtc_threshold, 0, 1, "in [0, 1]"},
    {"dynatemp_range", &SamplingParams::dynatemp_range, 0, kNoBound, "0 or a positive number"},
    {"dynatemp_exponent", &SamplingParams::dynatemp_exponent, 0, 100, "in [0, 100]"},
    {"dry_multiplier", &SamplingParams::dry_multiplier, 0, kNoBound, "0 or a positive number"},
    {"dry_base", &SamplingParams::dry_base, 1, kNoBound, "a finite number from 1 on"},
    {"mirostat_tau", &SamplingParams::mirostat_tau, 0, kNoBound, "0 or a positive number"},
    {"mirostat_eta", &SamplingParams::mirostat_eta, 0, 1, "in [0, 1]"},
};

struct IntRange {
  const char* field;
  int32_t SamplingParams::* value;
  int32_t min, max;
};
constexpr int32_t kMaxInt = std::numeric_limits<int32_t>::max();
constexpr IntRange kIntRanges[] = {
    {"dry_allowed_length", &SamplingParams::dry_allowed_length, 0, kMaxInt},
    {"dry_penalty_last_n", &SamplingParams::dry_penalty_last_n, -1, kMaxInt},
    {"penalty_last_n", &SamplingParams::penalty_last_n, -1, kMaxInt},
    {"mirostat", &SamplingParams::mirostat, 0, 2},
    {"min_tokens", &SamplingParams::min_tokens, 0, kMaxInt},
};

}  // namespace

Status SamplingParams::validate(int32_t vocab) const {
  if (!(temperature >= 0 && std::isfinite(temperature)))
    return out_of_range("temperature", temperature, "0 or a positive number");
  if (temperature > 0 && temperature < kMinTemperature)
    return out_of_range("temperature", temperature, "0 (the most likely token) or at least 1e-06");
  if (top_k < 0) return invalid_argument(fmt::format("top_k: {} is negative (0 turns it off)", top_k));
  if (!(top_p > 0 && top_p <= 1)) return out_of_range("top_p", top_p, "in (0, 1]");
  if (!(typical_p > 0 && typical_p <= 1)) return out_of_range("typical_p", typical_p, "in (0, 1]");
  if (!(repetition_penalty > 0 && std::isfinite(repetition_penalty)))
    return out_of_range("repetition_penalty", repetition_penalty, "a positive number");
  for (const Range& r : kRanges)
    if (!(this->*r.value >= r.min && this->*r.value <= r.max))
      return out_of_range(r.field, this->*r.value, r.allowed);
  for (const IntRange& r : kIntRanges)
    if (this->*r.value < r.min || this->*r.value > r.max)
      return invalid_argument(
          fmt::format("{}: {} is not within {} and {}", r.field, this->*r.value, r.min, r.max));
  for (const uint8_t index : chain)
    if (index >= processors().size())
      return invalid_argument(fmt::format("chain: there is no link {}", index));
  for (const auto& [token, bias] : logit_bias) {
    if (token < 0 || token >= vocab)
      return invalid_argument(
          fmt::format("logit_bias: token id {} is outside the vocabulary of {}", token, vocab));
    if (!std::isfinite(bias) && !(bias < 0))
      return invalid_argument(
          fmt::format("logit_bias: {} for token id {} is neither finite nor -infinity", bias, token));
  }
  if (logprobs < -1 || logprobs > vocab)
    return invalid_argument(fmt::format("logprobs: {} is outside [-1, {}]", logprobs, vocab));
  return {};
}

}  // namespace invar
