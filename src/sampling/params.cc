#include "sampling/params.h"

#include <fmt/format.h>

#include <cmath>

namespace invar {
namespace {

Status out_of_range(const char* field, float value, const char* allowed) {
  return invalid_argument(fmt::format("{}: {} is not {}", field, value, allowed));
}

}  // namespace

Status SamplingParams::validate(int32_t vocab) const {
  if (!(temperature >= 0 && std::isfinite(temperature)))
    return out_of_range("temperature", temperature, "0 or a positive number");
  if (temperature > 0 && temperature < kMinTemperature)
    return out_of_range("temperature", temperature, "0 (the most likely token) or at least 1e-06");
  if (top_k < 0) return invalid_argument(fmt::format("top_k: {} is negative (0 turns it off)", top_k));
  if (!(top_p > 0 && top_p <= 1)) return out_of_range("top_p", top_p, "in (0, 1]");
  if (!(min_p >= 0 && min_p <= 1)) return out_of_range("min_p", min_p, "in [0, 1]");
  if (!std::isfinite(presence_penalty))
    return out_of_range("presence_penalty", presence_penalty, "a finite number");
  if (!std::isfinite(frequency_penalty))
    return out_of_range("frequency_penalty", frequency_penalty, "a finite number");
  if (!(repetition_penalty > 0 && std::isfinite(repetition_penalty)))
    return out_of_range("repetition_penalty", repetition_penalty, "a positive number");
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
