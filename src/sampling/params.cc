#include "sampling/params.h"

#include <fmt/format.h>

#include <cmath>

#include "sampling/numbers.h"
#include "sampling/processor.h"

namespace invar {

Status SamplingParams::validate(int32_t vocab) const {
  for (const SamplingNumber& n : sampling_numbers())
    if (!n.within(n.get(*this)))
      return invalid_argument(
          fmt::format("{}: {} is not within {} and {}", n.name, n.text(*this), n.min, n.max));
  if (temperature > 0 && temperature < kMinTemperature)
    return invalid_argument(
        fmt::format("temperature: {} is neither 0 (the most likely token) nor at least {}", temperature,
                    kMinTemperature));
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
