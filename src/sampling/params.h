#pragma once
// SamplingParams: everything besides prompt and model that decides which tokens are chosen. A plain value.

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "sampling/dry_breakers.h"

namespace invar {

// Below it logit / temperature could leave the range of fp32, and different logits would become equal.
inline constexpr float kMinTemperature = 1e-6f;

struct SamplingParams {
  float temperature = 1.0f;                           // 0 = the most likely token; else >= kMinTemperature
  int32_t top_k = 0;                                  // up to 0 = off
  float top_p = 1.0f;                                 // 1 = off; 0 = the most likely token
  float min_p = 0.0f;                                 // 0 = off
  float presence_penalty = 0.0f;                      // counts generated tokens
  float frequency_penalty = 0.0f;                     // counts generated tokens
  float repetition_penalty = 1.0f;                    // counts prompt and generated tokens; 1 = off
  std::vector<std::pair<int32_t, float>> logit_bias;  // token id, added; -infinity = never
  uint64_t seed = 0;
  uint32_t sample_index = 0;  // keeps the completions of one prompt apart
  int32_t logprobs = -1;      // -1 = none; else that of the chosen token and of this many most likely ones

  float typical_p = 1.0f;        // 1 = off
  float top_n_sigma = 0.0f;      // standard deviations; up to 0 = off
  float xtc_probability = 0.0f;  // 0 = off
  float xtc_threshold = 0.1f;
  float dynatemp_range = 0.0f;  // around temperature; 0 = off
  float dynatemp_exponent = 1.0f;
  float dry_multiplier = 0.0f;  // 0 = off
  float dry_base = 1.75f;
  int32_t dry_allowed_length = 2;
  int32_t dry_penalty_last_n = -1;                  // tokens looked at; -1 = all, 0 = off
  std::shared_ptr<const DryBreakers> dry_breakers;  // nullptr = none
  int32_t penalty_last_n = -1;                      // tokens that the penalties count; -1 = all, 0 = off
  int32_t mirostat = 0;                             // version 1 or 2, in place of all filters; 0 = off
  float mirostat_tau = 5.0f;                        // bits
  float mirostat_eta = 0.1f;
  int32_t min_tokens = 0;      // generated before a stop id may come
  std::vector<uint8_t> chain;  // order of the links (chain.h); empty = all in the default order

  // Names what is out of range (numbers.h).
  Status validate(int32_t vocab) const;
};

}  // namespace invar
