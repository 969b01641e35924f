#include "backends/cpu/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/cpu/phase_work.h"
#include "base/trace.h"
#include "graph/logit_rows.h"

namespace invar {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

// While threads wait for the last tiles of a phase, and while norms and attention leave the memory idle. More
// rows than these keep every thread busy with arithmetic anyway.
constexpr size_t kAheadBytes = 512 * 1024, kAheadRows = 16;

}  // namespace

CpuExecutable::CpuExecutable(Graph graph, const ExecutableLimits& limits, const KernelTable& kernels,
                             const CostModel& cost, ThreadPool& pool)
    : graph_(std::move(graph)),
      limits_(limits),
      step_{.kernels = kernels, .pool = pool, .graph = graph_, .cost = cost} {}

Result<std::unique_ptr<CpuExecutable>> CpuExecutable::make(const Graph& graph, const WeightSet& weights,
                                                           const ExecutableLimits& limits,
                                                           const KernelTable& kernels, const CostModel& cost,
                                                           ThreadPool& pool) {
  CHECK(limits.max_tokens > 0 && limits.max_logit_rows >= 0);
  RETURN_IF_ERROR(graph.validate());
  std::unique_ptr<CpuExecutable> result(
      new CpuExecutable(select_rows_early(graph), limits, kernels, cost, pool));
  ASSIGN_OR_RETURN(result->plan_, make_step_plan(result->graph_, weights, limits));
  result->find_next_linear();
  RETURN_IF_ERROR(result->allocate().with_context(fmt::format(
      "working memory of a step of {} tokens and {} rows of logits (fewer with a smaller --max-batch)",
      limits.max_tokens, limits.max_logit_rows)));
  return result;
}

Status CpuExecutable::allocate() {
  const size_t max_tokens = size_t(limits_.max_tokens);
  int32_t kv_heads = 0;
  size_t attend_bytes = 0;
  for (const Phase& phase : plan_.phases) {
    if (const auto* experts = std::get_if<ExpertsPhase>(&phase)) {
      const size_t count = experts->experts.size();
      const size_t pairs = max_tokens * size_t(experts->router.attr.chosen);
      step_.expert_first.resize(std::max(step_.expert_first.size(), count + 1));
      step_.expert_jobs.reserve(count + pairs / size_t(kMinExpertRows));
    }
    const auto* attend = std::get_if<AttendPhase>(&phase);
    if (attend == nullptr) continue;
    const AttendAttr& attr = attend->attr;
    kv_heads = std::max(kv_heads, attr.kv_heads);
    attend_bytes = std::max(
        attend_bytes, step_.kernels.attend_scratch(kAttendRows, attr.heads / attr.kv_heads, attr.head_dim));
  }
  ASSIGN_OR_RETURN(scratch_, Buffer::allocate(plan_.scratch_bytes));
  step_.scratch = scratch_.data();

  const size_t row = round_up(plan_.worker_row_bytes, 64), gate = kGateFloats * sizeof(float);
  const size_t attend = round_up(attend_bytes, 64), faults = round_up(max_tokens, 64);
  const size_t gathered = round_up(plan_.gathered_floats * sizeof(float), 64);
  const size_t each = row + 2 * gate + attend + gathered + faults;
  ASSIGN_OR_RETURN(worker_scratch_, Buffer::allocate(each * size_t(step_.pool.threads())));
  std::byte* next = worker_scratch_.data();
  const auto take = [&](size_t bytes) { return std::exchange(next, next + bytes); };
  for (int worker = 0; worker < step_.pool.threads(); worker++) {
    WorkerMemory memory{};
    memory.row = take(row);
    memory.gate = reinterpret_cast<float*>(take(gate));
    memory.up = reinterpret_cast<float*>(take(gate));
    memory.attend = take(attend);
    memory.gathered = reinterpret_cast<float*>(take(gathered));
    memory.faults = reinterpret_cast<uint8_t*>(take(faults));
    step_.workers.push_back(memory);
  }
  if (kv_heads > 0 && step_.pool.threads() > 1) {
    ASSIGN_OR_RETURN(partials_, Buffer::allocate(kPartialFloats * sizeof(float)));
  }
  step_.partials = partials_.as<float>();
  step_.positions.resize(max_tokens);
  step_.sequence_of.resize(max_tokens);
  step_.jobs.reserve(max_tokens);
  step_.pending = std::make_unique<std::atomic<int32_t>[]>(max_tokens * size_t(kv_heads));
  return {};
}

// Behind the last phase comes the first one of the next step.
void CpuExecutable::find_next_linear() {
  const size_t count = plan_.phases.size();
  next_linear_.assign(count, nullptr);
  const LinearPhase* next = nullptr;
  for (size_t i = 2 * count; i-- > 0;) {
    if (i < count) next_linear_[i] = next;
    const Phase& phase = plan_.phases[i % count];
    if (const auto* linear = std::get_if<LinearPhase>(&phase)) next = linear;
    if (std::holds_alternative<ExpertsPhase>(phase)) next = nullptr;  // which ones is decided late
  }
}

size_t CpuExecutable::scratch_bytes() const {
  return scratch_.size() + worker_scratch_.size() + partials_.size();
}

void CpuExecutable::begin_step(const StepInputs& inputs) {
  CHECK(inputs.tokens.size() <= size_t(limits_.max_tokens));
  CHECK(inputs.logit_rows.size() <= size_t(limits_.max_logit_rows));
  const int32_t tokens = int32_t(inputs.tokens.size());
  for (int32_t token : inputs.tokens)
    CHECK(token >= 0 && token < graph_.vocab);
  for (size_t i = 0; i < inputs.logit_rows.size(); i++) {
    CHECK(inputs.logit_rows[i] >= (i == 0 ? 0 : inputs.logit_rows[i - 1] + 1) &&
          inputs.logit_rows[i] < tokens);
  }
  step_.inputs = inputs;
  int32_t row = 0;
  for (size_t s = 0; s < inputs.sequences.size(); s++) {
    const SequenceRows& sequence = inputs.sequences[s];
    CHECK(sequence.first_row == row && sequence.rows > 0 && sequence.rows <= tokens - row);
    CHECK(sequence.first_position >= 0 && sequence.kv.size() == graph_.kv_groups.size());
    for (size_t g = 0; g < sequence.kv.size(); g++) {
      const KvGroup& group = graph_.kv_groups[g];
      const KvView& kv = sequence.kv[g];
      CHECK(kv.layout != nullptr && kv.layout->layers == group.layers &&
            kv.layout->kv_heads == group.kv_heads && kv.layout->head_dim == group.head_dim &&
            kv.window == group.window);
      CHECK(!kv.runs.empty() &&
            kv.runs.back().first_position + kv.runs.back().length >= sequence.first_position + sequence.rows);
    }
    for (int32_t r = 0; r < sequence.rows; r++, row++) {
      step_.positions[size_t(row)] = sequence.first_position + r;
      step_.sequence_of[size_t(row)] = int32_t(s);
    }
  }
  CHECK(row == tokens);
  for (const WorkerMemory& memory : step_.workers)
    std::memset(memory.faults, 0, size_t(tokens));
}

void CpuExecutable::merge_faults() {
  uint8_t* merged = step_.workers[0].faults;
  for (size_t worker = 1; worker < step_.workers.size(); worker++) {
    const uint8_t* faults = step_.workers[worker].faults;
    for (size_t t = 0; t < step_.inputs.tokens.size(); t++)
      merged[t] |= faults[t];
  }
}

// The beginning of the weights that a linear phase reads: of its first matrix, of a gated one of both.
void CpuExecutable::fetch_ahead(const LinearPhase& phase) {
  const LinearPart& part = phase.parts.front();
  const auto head = [](const PackedMatrix& m, size_t most) {
    return AheadRange{m.data, std::min(most, m.bytes())};
  };
  if (part.up == nullptr) return step_.pool.fetch_ahead(head(*part.matrix, kAheadBytes));
  step_.pool.fetch_ahead(head(*part.matrix, kAheadBytes / 2), head(*part.up, kAheadBytes / 2));
}

StepOutputs CpuExecutable::run(const StepInputs& inputs) {
  begin_step(inputs);
  const bool ahead = inputs.tokens.size() <= kAheadRows;
  if (!ahead) step_.pool.fetch_ahead({});
  for (size_t p = 0; !inputs.tokens.empty() && p < plan_.phases.size(); p++) {
    if (ahead && next_linear_[p] != nullptr) fetch_ahead(*next_linear_[p]);
    Traced span(plan_.names[p].c_str(), SpanKind::kPhase);
    std::visit(Overloaded{[&](const RowPhase& phase) { run_row_phase(phase, step_); },
                          [&](const LinearPhase& phase) { run_linear_phase(phase, step_); },
                          [&](const AttendPhase& phase) { run_attend_phase(phase, step_); },
                          [&](const ExpertsPhase& phase) { run_experts_phase(phase, step_); }},
               plan_.phases[p]);
    if (span.on()) span.set_work(phase_work(plan_.phases[p], step_));
  }
  merge_faults();
  return {.logits = {step_.floats(plan_.logits, 0, 0), inputs.logit_rows.size() * size_t(graph_.vocab)},
          .faults = {step_.workers[0].faults, inputs.tokens.size()}};
}

}  // namespace invar
