#pragma once
// StepLoop: the engine thread's side of the engine. Sequences, caches and pages are touched here and nowhere
// else; what other threads see of it stands in SharedState. Steps are run by one thread at a time.

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "engine/batch.h"
#include "engine/engine.h"
#include "engine/prompt_scorer.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/shared_state.h"
#include "engine/step_sampler.h"
#include "kv/page_pool.h"
#include "kv/prefix_cache.h"

namespace invar {

// What create() made for an engine; nothing of it is replaced later.
struct EngineParts {
  EngineModel model;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Executable> executable;
  std::unique_ptr<PagePool> pool;
  std::vector<KvPlacement> placements;  // [groups]
  int32_t context = 0;                  // positions that one sequence can have
  EngineOptions options;                // resolved

  const Clock& clock() const { return options.clock != nullptr ? *options.clock : machine_clock(); }
};

class StepLoop {
 public:
  StepLoop(const EngineParts& parts, SharedState& shared);  // borrowed

  // Engine::step.
  bool step();
  // Everything that runs or waits ends as cancelled.
  void end_all();

  std::function<void(const StepRecord&)> trace;  // of every step; may be empty

 private:
  bool drain();
  std::unique_ptr<Sequence> sequence_of(Arrival::Choice& choice, int64_t submitted_ns);
  Result<StepOutputs> forward(const Plan& plan, StepRecord* record);
  void commit_row(size_t row, const StepOutputs& outputs);
  void sample(StepRecord* record);
  void count(StepRecord& record);
  void publish();

  const EngineParts& parts_;
  SharedState& shared_;
  const Clock& clock_;
  PrefixCache prefixes_;
  Scheduler scheduler_;
  StepSampler sampler_;
  PromptScorer scorer_;
  Batch batch_;
};

}  // namespace invar
