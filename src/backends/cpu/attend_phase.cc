// Attention phases: tasks are (rows of one sequence) x (KV head); where one of them would take long beside
// all others and its context is long, also x (split of the context), and whoever finishes the last split of a
// (rows, KV head) combines them. Long tasks go first, and threads claim tasks by their time: a step may hold
// short contexts beside rows of a long prompt. The cut never changes a bit: a whole attend computes the same
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

// Cuts every sequence into jobs of whole row blocks.
void cut_rows(const AttendAttr& attr, StepState& step) {
  step.jobs.clear();
  for (size_t s = 0; s < step.inputs.sequences.size(); s++) {
    const SequenceRows& sequence = step.inputs.sequences[s];
    int32_t row = 0;
    while (row < sequence.rows) {
      // Later rows see a longer context: judge by the last row this job could have.
      const auto ns_per_row_at = [&](int32_t r) {
        return ns_per_row(attr, int64_t{sequence.first_position} + row + r, step.cost);
      };
      const int32_t most = std::min(kAttendRows, sequence.rows - row);
      const int32_t fitting =
          int32_t(std::clamp(kMaxTaskNs / ns_per_row_at(most), kFewestRows, double(kAttendRows)));
      const int32_t rows = std::min(most, fitting);
      step.jobs.push_back({.sequence = int32_t(s),
                           .first_row = row,
                           .rows = rows,
                           .splits = 0,
                           .tasks = attr.kv_heads,
                           .task_ns = int64_t(rows * ns_per_row_at(rows)),
                           .first_ns = 0,
                           .first_partial = 0});
      row += rows;
    }
  }
}

int64_t total_ns(const StepState& step) {
  int64_t ns = 0;
  for (const AttendJob& job : step.jobs)
    ns += job.tasks * job.task_ns;
  return ns;
}

// Cuts the contexts of jobs whose tasks take longer than `most_ns`, as far as the memory for partial results
// goes.
void cut_contexts(const AttendAttr& attr, int64_t most_ns, StepState& step) {
  int64_t partial = 0;
  for (AttendJob& job : step.jobs) {
    const SequenceRows& sequence = step.inputs.sequences[job.sequence];
    const KvView& kv = sequence.kv[attr.group];
    const int64_t context = int64_t{sequence.first_position} + job.first_row + job.rows;
    const int64_t splits = (context + kSplitTokens - 1) / kSplitTokens;
    const int64_t floats = splits * job.rows * partial_floats_per_row(attr) * attr.kv_heads;
    const bool whole = kv.window == 0 && kv.runs[0].first_position == 0;
    if (job.task_ns <= most_ns || splits == 1 || !whole || partial + floats > kPartialFloats) continue;
    job.splits = int32_t(splits);
    job.tasks *= splits;
    job.task_ns = std::max(job.task_ns / splits, int64_t{1});
    job.first_partial = partial;
    partial += floats;
  }
}

// Sorts jobs and fills in what depends on their order. Returns the number of tasks.
int64_t order_jobs(const AttendAttr& attr, StepState& step) {
  std::sort(step.jobs.begin(), step.jobs.end(),
            [](const AttendJob& a, const AttendJob& b) { return a.task_ns > b.task_ns; });
  int64_t tasks = 0, ns = 0;
  for (size_t j = 0; j < step.jobs.size(); j++) {
    AttendJob& job = step.jobs[j];
    job.first_ns = ns;
    tasks += job.tasks;
    ns += job.tasks * job.task_ns;
    for (int32_t h = 0; job.splits > 0 && h < attr.kv_heads; h++) {
      step.pending[j * size_t(attr.kv_heads) + size_t(h)].store(job.splits, std::memory_order_relaxed);
    }
  }
  return tasks;
}

// How many tasks of a job begin before `ns`, counted from the phase's begin as if one thread did all.
int64_t tasks_before(const AttendJob& job, int64_t ns) {
  return std::clamp((ns - job.first_ns + job.task_ns - 1) / job.task_ns, int64_t{0}, job.tasks);
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
          .faults = step.workers[worker].faults + row,
          .softcap = phase.attr.softcap,
          .sinks = phase.sinks};
}

void run_task(const AttendPhase& phase, const AttendJob& job, int64_t task, int worker, StepState& step) {
  const AttendArgs args = attend_args(phase, job, worker, step);
  const int codec = args.kv->layout->codec->index;
  std::byte* scratch = step.workers[worker].attend;
  if (job.splits == 0) {
    step.kernels.attend[codec](args, int(task), 0, job.rows, scratch);
    return;
  }
  const int head = int(task / job.splits), split = int(task % job.splits);
  const int64_t split_floats = job.rows * partial_floats_per_row(phase.attr);
  float* partials = step.partials + job.first_partial + head * job.splits * split_floats;
  step.kernels.attend_split[codec](args, head, 0, job.rows, split, partials + split * split_floats, scratch);
  auto& pending = step.pending[size_t(&job - step.jobs.data()) * size_t(phase.attr.kv_heads) + size_t(head)];
  if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    step.kernels.attend_combine(args, head, 0, job.rows, job.splits, partials);
  }
}

}  // namespace

void run_attend_phase(const AttendPhase& phase, StepState& step) {
  const int threads = step.pool.threads();
  cut_rows(phase.attr, step);
  if (threads > 1) cut_contexts(phase.attr, total_ns(step) / (kTasksPerThread * threads), step);
  const int64_t tasks = order_jobs(phase.attr, step), total = total_ns(step);
  // Not shorter than a task on average: such claims would be empty.
  const int64_t claim_ns = std::max(units_per_task(total, 1, threads), total / tasks);
  step.pool.run((total + claim_ns - 1) / claim_ns, [&](int64_t claim, int worker) {
    const int64_t begin = claim * claim_ns, end = begin + claim_ns;
    const auto after = std::upper_bound(step.jobs.begin(), step.jobs.end(), begin,
                                        [](int64_t ns, const AttendJob& job) { return ns < job.first_ns; });
    for (auto job = after - 1; job != step.jobs.end() && job->first_ns < end; ++job) {
      const int64_t last = tasks_before(*job, end);
      for (int64_t task = tasks_before(*job, begin); task < last; task++)
        run_task(phase, *job, task, worker, step);
    }
  });
}

}  // namespace invar
