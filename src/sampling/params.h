#pragma once
// SamplingParams: everything besides prompt and model that decides which tokens are chosen. A plain value.

#include <cstdint>
#include <utility>
#include <vector>

#include "base/status.h"

namespace invar {

// Below it logit / temperature could leave the range of fp32, and different logits would become equal.
inline constexpr float kMinTemperature = 1e-6f;

struct SamplingParams {
  float temperature = 1.0f;                           // 0 = the most likely token; else >= kMinTemperature
  int32_t top_k = 0;                                  // 0 = off
  float top_p = 1.0f;                                 // 1 = off
  float min_p = 0.0f;                                 // 0 = off
  float presence_penalty = 0.0f;                      // counts generated tokens
  float frequency_penalty = 0.0f;                     // counts generated tokens
  float repetition_penalty = 1.0f;                    // counts prompt and generated tokens; 1 = off
  std::vector<std::pair<int32_t, float>> logit_bias;  // token id, added; -infinity = never
  uint64_t seed = 0;
  uint32_t sample_index = 0;  // keeps the completions of one prompt apart
  int32_t logprobs = -1;      // -1 = none; else that of the chosen token and of this many most likely ones

  // Names the field that is out of range.
  Status validate(int32_t vocab) const;
};

}  // namespace invar
