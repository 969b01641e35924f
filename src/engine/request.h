#pragma once
// GenerateRequest: what a caller hands to Engine::submit. Ids and numbers only, no text and no JSON.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/guard.h"
#include "sampling/params.h"

namespace invar {

inline constexpr int32_t kMaxPriority = 100;  // and -kMaxPriority

struct GenerateRequest {
  std::vector<int32_t> prompt;  // token ids, at least one
  int32_t max_tokens = 0;       // generated at most; 0 = none (scores only)
  SamplingParams sampling;
  std::vector<int32_t> stop_ids;  // end the sequence, not part of the answer
  bool ignore_eos = false;        // stop_ids do not apply
  std::unique_ptr<Guard> guard;   // may be null

  uint64_t cache_salt = 0;  // a tenant's prompts share cached pages only under equal salts
  int32_t priority = 0;     // lower comes earlier, within kMaxPriority; see rank.h
  // Whose it is: tenants are served alike, however much one of them asks for, and share no pages.
  uint64_t tenant = 0;

  // Observer of raw logits, called on the engine thread in ascending position with f32 [vocab]: for every
  // prompt position (all_prompt_logits) or those that a token is chosen from. The span dies with the call.
  std::function<void(int32_t position, std::span<const float> logits)> on_logits;
  bool all_prompt_logits = false;

  // Scores of the prompt's own tokens as events (TokenEvent::of_prompt), as sampling.logprobs counts; -1 =
  // none. The first token has no score: its event has logprob 0 and no alternatives.
  int32_t prompt_logprobs = -1;

  // Called on the engine thread after events were put into the stream, once per step; must not block. What it
  // throws cancels the request.
  std::function<void()> notify;
};

}  // namespace invar
