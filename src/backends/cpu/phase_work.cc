#include "backends/cpu/phase_work.h"

#include <algorithm>

namespace invar {
namespace {

void add_matrix(const PackedMatrix* matrix, int64_t rows, SpanWork* work) {
  if (matrix == nullptr) return;
  work->bytes += double(matrix->bytes());
  (is_float(*matrix->form) ? work->float_macs : work->macs) +=
      double(rows) * double(matrix->rows) * double(matrix->cols);
}

SpanWork work_of(const RowPhase& phase, const StepState& step) {
  return {.rows = step.count(phase.rows)};
}

SpanWork work_of(const LinearPhase& phase, const StepState& step) {
  SpanWork work{.rows = step.count(phase.rows)};
  if (work.rows == 0) return work;
  for (const LinearPart& part : phase.parts) {
    add_matrix(part.matrix, work.rows, &work);
    add_matrix(part.up, work.rows, &work);
  }
  return work;
}

SpanWork work_of(const AttendPhase& phase, const StepState& step) {
  SpanWork work{.rows = step.count(Rows::kTokens)};
  for (const SequenceRows& sequence : step.inputs.sequences) {
    const KvView& kv = sequence.kv[phase.attr.group];
    const auto seen = [&](int64_t position) {
      return kv.window > 0 ? std::min<int64_t>(position + 1, kv.window) : position + 1;
    };
    const int64_t last = int64_t{sequence.first_position} + sequence.rows - 1;
    const double read = double(std::min(last + 1, seen(last) + sequence.rows - 1));
    work.bytes += read * double(kv.layout->head_bytes()) / kPageTokens * phase.attr.kv_heads;
    for (int64_t p = sequence.first_position; p <= last; ++p)
      work.float_macs += 2.0 * phase.attr.heads * phase.attr.head_dim * double(seen(p));
  }
  return work;
}

SpanWork work_of(const ExpertsPhase& phase, const StepState& step) {
  SpanWork work{.rows = step.count(phase.rows)};
  if (work.rows == 0) return work;
  for (size_t e = 0; e < phase.experts.size(); ++e) {
    const int64_t rows = step.expert_first[e + 1] - step.expert_first[e];
    if (rows == 0) continue;
    const ExpertRefs& expert = phase.experts[e];
    for (const PackedMatrix* matrix : {expert.gate, expert.up, expert.down})
      add_matrix(matrix, rows, &work);
  }
  return work;
}

}  // namespace

SpanWork phase_work(const Phase& phase, const StepState& step) {
  return std::visit([&](const auto& p) { return work_of(p, step); }, phase);
}

}  // namespace invar
