#pragma once
// Backend: runs graphs. The engine owns one, chosen once; compile() happens at load, run() on the engine
// thread.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "graph/graph.h"
#include "graph/weight_set.h"
#include "kv/kv_run.h"
#include "tensor/row_kernels.h"

namespace invar {

// Consecutive rows of one sequence inside a step.
struct SequenceRows {
  int32_t first_row;  // index into tokens
  int32_t rows;
  int32_t first_position;      // absolute position of the first of them
  std::span<const KvView> kv;  // one per KV group
  bool long_rope = false;      // Graph::rotates_long of its prompt
};

struct StepInputs {
  std::span<const int32_t> tokens;          // [T]
  std::span<const SequenceRows> sequences;  // cover [0, T) in order, no padding
  std::span<const int32_t> logit_rows;      // [L] indices into tokens, ascending
};

struct StepOutputs {
  std::span<const float> logits;    // [L, vocab], owned by the executable, valid until the next run
  std::span<const uint8_t> faults;  // [T]: 1 where a row met NaN or infinity
};

struct ExecutableLimits {
  int32_t max_tokens;      // T of a step
  int32_t max_logit_rows;  // L of a step
};

class Executable {
 public:
  virtual ~Executable() = default;
  virtual StepOutputs run(const StepInputs& inputs) = 0;
  virtual size_t scratch_bytes() const = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;  // "cpu/avx2, 2 threads"
  virtual bool supports(const KvCodec& codec) const = 0;
  virtual const RowKernels& row_kernels() const = 0;  // what the sampler reads logits with
  virtual int threads() const { return 1; }           // never changes
  // fn(task, thread) for every task in [0, tasks), thread in [0, threads()), side by side where there are
  // several threads, and returns when all are done. Engine thread, between runs. fn does not throw.
  virtual void run_tasks(int64_t tasks, FunctionRef<void(int64_t task, int thread)> fn) {
    for (int64_t task = 0; task < tasks; ++task)
      fn(task, 0);
  }
  // graph and weights must outlive the executable.
  virtual Result<std::unique_ptr<Executable>> compile(const Graph& graph, const WeightSet& weights,
                                                      const ExecutableLimits& limits) = 0;
};

struct CpuBackendOptions {
  int threads = 0;  // 0 = every core this process may use
  std::string isa;  // "" = the best of this CPU
};
Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuBackendOptions& options);

}  // namespace invar
