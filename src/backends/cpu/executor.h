#pragma once
// CpuExecutable: runs a compiled graph step by step on the backend's thread pool. Owned by the engine, used
// by the engine thread only. run() allocates nothing. Borrows the graph's weights, the kernel table and the
// pool.

#include <memory>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/plan.h"
#include "backends/cpu/step_state.h"
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "tensor/buffer.h"

namespace invar {

class CpuExecutable final : public Executable {
 public:
  // The graph is copied (its logit rows are selected early); weights must outlive the executable.
  static Result<std::unique_ptr<CpuExecutable>> make(const Graph& graph, const WeightSet& weights,
                                                     const ExecutableLimits& limits,
                                                     const KernelTable& kernels, const CostModel& cost,
                                                     ThreadPool& pool);

  // Sequences must cover the tokens in order, tokens lie in the vocabulary, and views match the graph's KV
  // groups with slots reserved for every row: anything else is a programmer error. A row that wants no logits
  // is not computed beyond the last layer's attention, nor does it meet faults there.
  StepOutputs run(const StepInputs& inputs) override;
  size_t scratch_bytes() const override;

  const StepPlan& plan() const { return plan_; }

 private:
  CpuExecutable(Graph graph, const ExecutableLimits& limits, const KernelTable& kernels,
                const CostModel& cost, ThreadPool& pool);
  Status allocate();
  void begin_step(const StepInputs& inputs);
  void merge_faults();
  void find_next_linear();
  void fetch_ahead(const LinearPhase& phase);

  const Graph graph_;
  const ExecutableLimits limits_;
  StepPlan plan_;
  std::vector<const LinearPhase*> next_linear_;  // [phases]: whose weights are read next; nullptr: not known
  Buffer scratch_;                               // plan_.scratch_bytes
  Buffer worker_scratch_;                        // every worker's memory
  Buffer partials_;
  StepState step_;
};

}  // namespace invar
