// Attention phases: tasks are (rows of one sequence) x (KV head); where a step has too few of them to keep
// the threads busy and the context is long, also x (split of the context), and whoever finishes the last
// split of a (rows, KV head) combines them. The cut never changes a bit: a whole attend computes the same
// splits and combines them alike.

#include <algorithm>

#include "backends/cpu/step_state.h"

namespace invar {
namespace {

double ns_per_row(const AttendAttr& attr, int64_t context, const CostModel& cost) {
  const double macs = 2.0 * (attr.heads / attr.kv_heads) * attr.head_dim * double(context);
  return 200 + macs / cost.attend_macs_per_ns;
}

int64_t partial_floats_per_row(const AttendAttr& attr) {
  return int64_t{attr.heads / attr.kv_heads} * partial_floats(attr.head_dim);
}

// Below this the keys and values of a page would be widened for too few queries.
constexpr double kFewestRows = 4;

// Cuts every sequence into jobs of whole row blocks; returns the number of tasks.
int64_t cut_rows(const AttendAttr& attr, StepState& step) {
  step.jobs.clear();
  int64_t tasks = 0;
  for (size_t s = 0; s < step.inputs.sequences.size(); s++) {
    const SequenceRows& sequence = step.inputs.sequences[s];
    int32_t row = 0;
    while (row < sequence.rows) {
      // Later rows see a longer context: judge by the last row this job could have.
      const int32_t most = std::min(kAttendRows, sequence.rows - row);
      const double ns = ns_per_row(attr, int64_t{sequence.first_position} + row + most, step.cost);
      const int32_t fitting = int32_t(std::clamp(kMaxTaskNs / ns, kFewestRows, double(kAttendRows)));
      const int32_t rows = std::min(most, fitting);
      step.jobs.push_back({int32_t(s), row, rows, 0, tasks, 0});
      tasks += attr.kv_heads;
      row += rows;
    }
  }
  return tasks;
}

double total_ns(const AttendAttr& attr, const StepState& step) {
  double ns = 0;
  for (const AttendJob& job : step.jobs) {
    const int64_t context =
        int64_t{step.inputs.sequences[job.sequence].first_position} + job.first_row + job.rows;
    ns += job.rows * ns_per_row(attr, context, step.cost);
  }
  return ns * attr.kv_heads;
}

// Cuts long contexts of the jobs into splits, as far as the memory for partial results goes.
int64_t cut_contexts(const AttendAttr& attr, StepState& step) {
  int64_t tasks = 0, partial = 0;
  for (size_t j = 0; j < step.jobs.size(); j++) {
    AttendJob& job = step.jobs[j];
    const SequenceRows& sequence = step.inputs.sequences[job.sequence];
    const KvView& kv = sequence.kv[attr.group];
    const int64_t context = int64_t{sequence.first_position} + job.first_row + job.rows;
    const int64_t splits = (context + kSplitTokens - 1) / kSplitTokens;
    const int64_t floats = splits * job.rows * partial_floats_per_row(attr);
    const bool whole = kv.window == 0 && kv.runs[0].first_position == 0;
    job.first_task = tasks;
    if (splits > 1 && whole && partial + floats * attr.kv_heads <= kPartialFloats) {
      job.splits = int32_t(splits);
      job.first_partial = partial;
      partial += floats * attr.kv_heads;
      for (int32_t h = 0; h < attr.kv_heads; h++) {
        step.pending[j * size_t(attr.kv_heads) + size_t(h)].store(job.splits, std::memory_order_relaxed);
      }
    }
    tasks += int64_t{attr.kv_heads} * std::max(job.splits, 1);
  }
  return tasks;
}

AttendArgs attend_args(const AttendPhase& phase, const AttendJob& job, int worker, const StepState& step) {
  const SequenceRows& sequence = step.inputs.sequences[job.sequence];
  const int32_t row = sequence.first_row + job.first_row;
  return {.q = step.floats(phase.q, row, worker),
          .q_stride = int64_t(phase.q.stride / sizeof(float)),
          .out = step.floats(phase.out, row, worker),
          .out_stride = int64_t(phase.out.stride / sizeof(float)),
          .rows = job.rows,
          .first_position = sequence.first_position + job.first_row,
          .heads = phase.attr.heads,
          .scale = phase.attr.scale,
          .kv = &sequence.kv[phase.attr.group],
          .layer = phase.attr.layer,
          .faults = step.workers[worker].faults + row};
}

void run_task(const AttendPhase& phase, int64_t task, int worker, StepState& step) {
  const auto after = std::upper_bound(step.jobs.begin(), step.jobs.end(), task,
                                      [](int64_t t, const AttendJob& job) { return t < job.first_task; });
  const AttendJob& job = *(after - 1);
  const AttendArgs args = attend_args(phase, job, worker, step);
  const int codec = args.kv->layout->codec->index;
  std::byte* scratch = step.workers[worker].attend;
  const int64_t inside = task - job.first_task;
  if (job.splits == 0) {
    step.kernels.attend[codec](args, int(inside), 0, job.rows, scratch);
    return;
  }
  const int head = int(inside / job.splits), split = int(inside % job.splits);
  const int64_t split_floats = job.rows * partial_floats_per_row(phase.attr);
  float* partials = step.partials + job.first_partial + head * job.splits * split_floats;
  step.kernels.attend_split[codec](args, head, 0, job.rows, split, partials + split * split_floats, scratch);
  auto& pending =
      step.pending[size_t(after - 1 - step.jobs.begin()) * size_t(phase.attr.kv_heads) + size_t(head)];
  if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    step.kernels.attend_combine(args, head, 0, job.rows, job.splits, partials);
  }
}

}  // namespace

void run_attend_phase(const AttendPhase& phase, StepState& step) {
  const int threads = step.pool.threads();
  int64_t tasks = cut_rows(phase.attr, step);
  if (threads > 1 && tasks < int64_t{kTasksPerThread} * threads) tasks = cut_contexts(phase.attr, step);
  const int64_t per_claim = units_per_task(tasks, total_ns(phase.attr, step) / double(tasks), threads);
  step.pool.run((tasks + per_claim - 1) / per_claim, [&](int64_t claim, int worker) {
    const int64_t end = std::min(tasks, (claim + 1) * per_claim);
    for (int64_t task = claim * per_claim; task < end; task++)
      run_task(phase, task, worker, step);
  });
}

}  // namespace invar
