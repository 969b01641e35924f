#pragma once
// Plain snapshots of what the engine did: no pointers into it.

#include <cstdint>

namespace invar {

// One step, as it ran.
struct StepRecord {
  int64_t step = 0;
  // Each row counts once, by its first token.
  int32_t decode_rows = 0;      // generated or forced
  int32_t prompt_rows = 0;      // of the prompt
  int32_t recomputed_rows = 0;  // computed before and lost to preemption
  int32_t tokens = 0;           // of all rows
  int32_t prompt_tokens = 0;    // computed for the first time
  int32_t recomputed_tokens = 0;
  int32_t cut_prompts = 0;  // prompts that did not fit and go on in a later step
  int32_t logit_rows = 0;
  int32_t preempted = 0;
  int64_t forward_ns = 0;
  int64_t total_ns = 0;
  bool mixed() const { return decode_rows > 0 && prompt_rows > 0; }
};

struct EngineStats {
  int64_t steps = 0;
  int64_t prompt_tokens = 0;  // each position once
  int64_t recomputed_tokens = 0;
  int64_t generated_tokens = 0;
  int32_t waiting = 0;
  int32_t running = 0;
  int64_t pages_used = 0;
  int64_t pages_total = 0;
  uint64_t kv_bytes_total = 0;
  uint64_t scratch_bytes = 0;
};

}  // namespace invar
