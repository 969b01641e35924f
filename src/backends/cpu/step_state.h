#pragma once
// StepState: what the phases of a running step share: the step's inputs, where rows lie, and the memory of
// each worker. Owned by the executable, sized at compile; filled by run() on the engine thread, read by the
// workers.

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/cost_model.h"
#include "backends/cpu/plan.h"
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "tensor/buffer.h"

namespace invar {

inline constexpr int32_t kAttendRows = 16;     // most rows of one attention task
inline constexpr int64_t kGateFloats = 8192;   // gate values of one task, and as many up values
inline constexpr int64_t kMinExpertRows = 32;  // of one expert that a task takes, if there are as many
inline constexpr int64_t kPartialFloats = int64_t{1}
                                          << 19;  // partial results of split attention, all tasks of a phase

struct WorkerMemory {
  std::byte* row;     // StepPlan::worker_row_bytes
  float* gate;        // [kGateFloats]
  float* up;          // [kGateFloats]
  std::byte* attend;  // attend_scratch bytes
  float* gathered;    // [StepPlan::gathered_floats]
  uint8_t* faults;    // [max_tokens]; own for each worker, merged at the end of the step
};

// Attention of consecutive rows of one sequence, for every KV head: `tasks` of them, `splits` per KV head
// where that is > 0, else one. Times are estimates.
struct AttendJob {
  int32_t sequence;
  int32_t first_row;  // inside the sequence
  int32_t rows;
  int32_t splits;
  int64_t tasks;
  int64_t task_ns;        // of each
  int64_t first_ns;       // of all jobs before it
  int64_t first_partial;  // floats
};

// Rows of one expert, and their times: of each tile, and of all jobs before. Estimates.
struct ExpertJob {
  int32_t expert;
  int32_t first_place;  // among the pairs, which lie expert by expert
  int32_t rows;
  int64_t tile_ns;
  int64_t first_ns;
};

struct StepState {
  const KernelTable& kernels;
  ThreadPool& pool;
  const Graph& graph;
  const CostModel cost;
  std::byte* scratch = nullptr;
  std::vector<WorkerMemory> workers;

  StepInputs inputs;
  std::vector<int32_t> positions;    // [max_tokens]
  std::vector<int32_t> sequence_of;  // [max_tokens]

  std::vector<AttendJob> jobs;  // capacity max_tokens
  float* partials = nullptr;    // [kPartialFloats]
  std::unique_ptr<std::atomic<int32_t>[]>
      pending;  // [max_tokens * most KV heads]: splits of a (job, KV head)

  std::vector<int32_t> expert_first;   // [most experts + 1]: first place of each
  std::vector<ExpertJob> expert_jobs;  // capacity for the most

  int32_t count(Rows rows) const {
    return int32_t(rows == Rows::kTokens ? inputs.tokens.size() : inputs.logit_rows.size());
  }
  int32_t token_of(Rows rows, int64_t row) const {
    return rows == Rows::kTokens ? int32_t(row) : inputs.logit_rows[row];
  }
  std::byte* at(const RowsRef& ref, int64_t row, int worker) const {
    std::byte* base = ref.place == RowsRef::Place::kWorker ? workers[worker].row : scratch;
    return base + ref.offset + size_t(row) * ref.stride;
  }
  // The n elements of x in the order of columns, in the worker's memory; x where there are none.
  const float* gathered(const float* x, const int32_t* columns, int64_t n, int worker) const {
    if (columns == nullptr) return x;
    for (int64_t k = 0; k < n; k++)
      workers[worker].gathered[k] = x[columns[k]];
    return workers[worker].gathered;
  }
  float* floats(const RowsRef& ref, int64_t row, int worker) const {
    return reinterpret_cast<float*>(at(ref, row, worker));
  }
};

// Each runs one phase of the step on the pool and returns when it is finished.
void run_row_phase(const RowPhase& phase, StepState& step);
void run_linear_phase(const LinearPhase& phase, StepState& step);
void run_attend_phase(const AttendPhase& phase, StepState& step);
void run_experts_phase(const ExpertsPhase& phase, StepState& step);

}  // namespace invar
