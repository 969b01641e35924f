#pragma once
// Engine: one model, one scheduler, one thread. submit() may be called from any thread; everything else that
// touches sequences, caches and the pool happens in step(), on the engine thread (start(), or the caller who
// steps by hand).

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/clock.h"
#include "base/status.h"
#include "engine/request.h"
#include "engine/stats.h"
#include "engine/stream.h"
#include "graph/graph.h"
#include "graph/weight_set.h"
#include "models/model.h"

namespace invar {

inline constexpr int32_t kMaxBatch = 4096;
inline constexpr int32_t kMaxChoices = 128;

struct EngineOptions {
  std::string kv = "f16";     // KV codec by name
  int32_t context = 0;        // positions per sequence; 0 = the model's trained length
  uint64_t memory_bytes = 0;  // bound of the KV pool; 0 = kFreeMemoryShare of what the weights leave free
  uint64_t prefix_cache_bytes =
      UINT64_MAX;                 // bound of pages kept for later prompts, inside the pool; 0 = off
  int32_t max_step_tokens = 512;  // token budget of a step, at least max_batch
  int32_t prefill_chunk = 0;      // prompt tokens per sequence and step; 0 = up to the budget
  int32_t max_batch = 64;         // sequences per step, at most kMaxBatch
  int32_t max_logit_rows = 64;    // rows with logits per step, at least max_batch
  int32_t max_queue = INT32_MAX;  // answers that may wait beside max_batch running ones
  int32_t max_stall_ms = 0;       // prompts lengthen a step with streams by at most this; 0 = by any time
  int32_t max_wait_s = 0;         // requests that would wait longer are refused; 0 = none are
  const Clock* clock = nullptr;   // of everything that is measured; nullptr = the machine's
};

// What the engine needs of a model; `owner` keeps the rest alive.
struct EngineModel {
  const Graph* graph = nullptr;
  const WeightSet* weights = nullptr;
  int32_t context_length = 0;  // trained positions
  uint64_t mapped_bytes = 0;   // weights that are not in memory yet
  std::shared_ptr<const void> owner;
};

class Engine {
 public:
  // Refuses options out of range, and a pool that cannot hold one sequence of the context.
  static Result<std::unique_ptr<Engine>> create(std::shared_ptr<const Model> model,
                                                std::unique_ptr<Backend> backend,
                                                const EngineOptions& options);
  static Result<std::unique_ptr<Engine>> create(EngineModel model, std::unique_ptr<Backend> backend,
                                                const EngineOptions& options);
  ~Engine();  // stops the thread; unfinished requests end as cancelled

  // Refuses what can never run (empty prompt, ids outside the vocabulary, longer than the context, bad
  // sampling fields) with a message that names field and numbers. What fits the context fits the pool.
  // kResourceExhausted: the queue is full, or the wait would be too long.
  Result<std::shared_ptr<Stream>> submit(GenerateRequest request);
  // The same for `choices` answers to one prompt, which is computed once: stream i chooses with sample_index
  // + i and a clone of the guard, and gets the tokens it would get alone; notify serves them all. Scores of
  // the prompt and all logits go to the first.
  Result<std::vector<std::shared_ptr<Stream>>> submit(GenerateRequest request, int32_t choices);

  // Runs one step: drain, plan, gather, forward, sample, commit, publish. False when there was nothing to do.
  // An exception of the backend ends the requests of the step, one of an observer or a guard its own request.
  bool step();

  void start();  // runs step() on a thread of its own until destruction, sleeping while idle

  EngineStats stats() const;        // a snapshot, from any thread
  double predicted_wait_s() const;  // of the snapshot, alone: cheap; from any thread
  int32_t context() const;          // positions that one sequence can have
  int64_t max_answers() const;      // that can run and wait at once: max_batch + max_queue
  // Called after every step on the engine thread with what ran; for tests and traces. Set before the first
  // step.
  void set_trace(std::function<void(const StepRecord&)> trace);

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace invar
