#pragma once
// Plain snapshots of what the engine did: no pointers into it.

#include <cstdint>
#include <numeric>
#include <vector>

namespace invar {

// One step, as it ran.
struct StepRecord {
  int64_t step = 0;
  int64_t start_ns = 0;  // of the engine's clock
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
  int32_t reused_tokens = 0;         // found in the prefix cache
  int32_t following = 0;             // prompts that sat out, because another one computes what they need
  int32_t running = 0, waiting = 0;  // sequences, when the step was planned
  int64_t pages_used = 0, pages_idle = 0;  // when it had run
  double predicted_ns = 0;                 // what total_ns was expected to be
  int64_t forward_ns = 0, sample_ns = 0;   // of total_ns: the forward pass, the choice of tokens
  int64_t total_ns = 0;                    // from the drain to the last choice; without publishing
  bool mixed() const { return decode_rows > 0 && prompt_rows > 0; }
};

struct HistogramStats {
  std::vector<double> bounds;   // upper bounds, ascending; a value equal to a bound lies below it
  std::vector<int64_t> counts;  // [bounds + 1]: per bucket, not cumulative; the last one is above all bounds
  double sum = 0;
  int64_t count() const { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }
};

// Requests that ended; every choice of a request with several counts as one. Times in seconds. A request is
// queued from submit() until a step computes the first token of its prompt.
struct RequestStats {
  int64_t stopped = 0, reached_length = 0, cancelled = 0, failed = 0;  // by finish reason
  HistogramStats queue_s;
  HistogramStats prefill_s;  // first scheduled to first token
  HistogramStats decode_s;   // first token to last token
  HistogramStats end_to_end_s;
  HistogramStats prompt_tokens, generated_tokens;
  // Of every request, while it runs.
  HistogramStats time_to_first_token_s;
  HistogramStats inter_token_s;  // between the events of one step and of the next that had any
};

struct EngineStats {
  int64_t steps = 0;
  int64_t prompt_tokens = 0;  // computed, each position once
  int64_t recomputed_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t preemptions = 0;
  int32_t live = 0;             // submitted and not ended
  int32_t running = 0;          // of these, those that take part in steps
  int32_t waiting = 0;          // the others
  double predicted_wait_s = 0;  // of a request that would come now, until a step has it
  int64_t prefix_evictions = 0;
  int64_t pages_used = 0;  // by requests
  int64_t pages_idle = 0;  // kept by the prefix cache, given up when a request needs them
  int64_t pages_total = 0;
  uint64_t kv_bytes_total = 0;
  uint64_t scratch_bytes = 0;
  HistogramStats step_tokens;  // of all rows of a step
  RequestStats requests;
};

}  // namespace invar
