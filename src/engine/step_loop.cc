#include "engine/step_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/trace.h"
#include "engine/contained.h"

namespace invar {
namespace {

SchedulerLimits limits_of(const EngineOptions& o) {
  return {o.max_step_tokens, o.prefill_chunk, o.max_batch, o.max_logit_rows,
          int64_t{o.max_stall_ms} * 1'000'000};
}

// Made before the step runs: a commit moves what counts as computed.
StepRecord record_of(const Plan& plan) {
  StepRecord r;
  for (const Row& row : plan.rows) {
    const int32_t first = row.first_position, end = first + int32_t(row.tokens.size());
    const int32_t fresh = std::clamp(row.sequence->computed(), first, end);
    const int32_t prompt = row.sequence->prompt_length();
    ++(first < fresh ? r.recomputed_rows : first < prompt ? r.prompt_rows : r.decode_rows);
    r.tokens += end - first;
    r.recomputed_tokens += fresh - first;
    r.prompt_tokens += std::max(0, std::min(end, prompt) - fresh);
    r.logit_rows += row.logits;
  }
  r.cut_prompts = plan.cut_prompts;
  r.preempted = plan.preempted;
  r.reused_tokens = plan.reused_tokens;
  r.following = plan.following;
  r.predicted_ns = plan.predicted_ns;
  return r;
}

}  // namespace

StepLoop::StepLoop(const EngineParts& parts, SharedState& shared)
    : parts_(parts),
      shared_(shared),
      clock_(parts.clock()),
      prefixes_(parts.pool.get(), parts.placements, parts.options.prefix_cache_bytes),
      scheduler_(limits_of(parts.options), &prefixes_, parts.placements),
      sampler_(parts.backend.get(), parts.model.graph->vocab),
      scorer_(parts.backend->row_kernels()) {}

bool StepLoop::step() {
  const int64_t start_ns = clock_.now_ns();
  Traced span("step", SpanKind::kStep);
  const bool changed = drain();
  const Plan& plan = scheduler_.plan();
  if (plan.rows.empty()) {
    CHECK(scheduler_.empty());
    return changed;
  }
  StepRecord record = record_of(plan);
  record.start_ns = start_ns;
  record.running = scheduler_.running();
  record.waiting = scheduler_.waiting();
  const Result<StepOutputs> outputs = forward(plan, &record);
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    plan.rows[i].sequence->scheduled(start_ns);
    if (outputs.ok()) {
      commit_row(i, *outputs);
    } else {
      plan.rows[i].sequence->fail(outputs.status());
    }
  }
  sample(&record);
  record.total_ns = clock_.now_ns() - start_ns;
  if (outputs.ok()) scheduler_.ran(record.total_ns);
  count(record);
  publish();
  return true;
}

// New requests become sequences, cancelled ones end. True if anything happened.
bool StepLoop::drain() {
  // Asked before the inbox is: what was cancelled by then has arrived.
  const bool look = shared_.cancels->exchange(false, std::memory_order_acq_rel);
  std::vector<Arrival> arrived = shared_.inbox.drain();
  for (Arrival& arrival : arrived) {
    auto first = sequence_of(arrival.choices[0], arrival.submitted_ns);
    for (Arrival::Choice& further : std::span(arrival.choices).subspan(1))
      first->add_fork(sequence_of(further, arrival.submitted_ns));
    scheduler_.add(std::move(first));
  }
  bool cancelled = false;
  if (look) {
    scheduler_.for_each([&](Sequence& sequence) {
      if (!sequence.end_cancelled()) return;
      scheduler_.touch(sequence);
      cancelled = true;
    });
  }
  if (cancelled) publish();
  return cancelled || !arrived.empty();
}

std::unique_ptr<Sequence> StepLoop::sequence_of(Arrival::Choice& choice, int64_t submitted_ns) {
  const bool long_rope = parts_.model.graph->rotates_long(int64_t(choice.request.prompt.size()));
  return std::make_unique<Sequence>(std::move(choice.request), std::move(choice.stream), submitted_ns,
                                    &prefixes_, KvCache(parts_.pool.get(), parts_.placements), parts_.context,
                                    long_rope);
}

Result<StepOutputs> StepLoop::forward(const Plan& plan, StepRecord* record) {
  StepOutputs outputs;
  RETURN_IF_ERROR(contained("the forward pass", [&] {
    Traced span("forward", SpanKind::kForward);
    batch_.gather(plan.rows, *parts_.pool, parts_.model.graph->kv_groups);
    const int64_t before = clock_.now_ns();
    outputs = parts_.executable->run(batch_.inputs());
    record->forward_ns = clock_.now_ns() - before;
  }));
  return outputs;
}

// A row that met NaN or infinity ends its own request and no other; its slots were only reserved.
void StepLoop::commit_row(size_t index, const StepOutputs& outputs) {
  const Row& row = batch_.rows()[index];
  Sequence& sequence = *row.sequence;
  const auto faults = outputs.faults.subspan(size_t(batch_.first_token(index)), row.tokens.size());
  const auto fault = std::find_if(faults.begin(), faults.end(), [](uint8_t f) { return f != 0; });
  if (fault != faults.end()) {
    return sequence.fail(
        internal_error(fmt::format("the model's numbers became NaN or infinite at position {}",
                                   row.first_position + (fault - faults.begin()))));
  }
  const size_t vocab = size_t(parts_.model.graph->vocab);
  const auto logits =
      outputs.logits.subspan(size_t(batch_.first_logit(index)) * vocab, size_t(row.logits) * vocab);
  const Status committed = contained("the request's observer",
                                     [&] { sequence.commit(int32_t(row.tokens.size()), logits, scorer_); });
  if (!committed.ok()) sequence.fail(committed);
  if (sequence.pending() > 0) return;
  // Empty where nobody chooses: a prompt without an answer asks for no logits.
  const auto last_logits = logits.last(std::min(logits.size(), vocab));
  for (const auto& fork : sequence.forks()) {
    fork->split_from(sequence);
    sampler_.add(*fork, last_logits);
  }
  scheduler_.add_forks(sequence, sequence.release_forks());
  sampler_.add(sequence, last_logits);
}

// The next token of every sequence that is to choose one.
void StepLoop::sample(StepRecord* record) {
  Traced span("sample", SpanKind::kSampling);
  const int64_t before = clock_.now_ns();
  sampler_.choose([this](Sequence& sequence, Result<Choice> choice) {
    const Status taken =
        choice.ok() ? contained("the request's guard",
                                [&] { sequence.take(std::move(*choice), parts_.model.graph->vocab); })
                    : choice.status();
    if (!taken.ok()) sequence.fail(taken);
  });
  record->sample_ns = clock_.now_ns() - before;
}

void StepLoop::count(StepRecord& record) {
  record.step = shared_.steps++;
  record.pages_idle = parts_.pool->total_idle();
  record.pages_used = parts_.pool->total_used() - record.pages_idle;
  shared_.prompt_tokens += record.prompt_tokens;
  shared_.recomputed_tokens += record.recomputed_tokens;
  shared_.preemptions += record.preempted;
  shared_.prefix_evictions = prefixes_.evictions();
  shared_.metrics.step(record.tokens);
  int64_t ages_ns = 0;
  for (const auto& sequence : scheduler_.running_sequences())
    if (sequence->times().scheduled > 0) ages_ns += record.start_ns - sequence->times().scheduled;
  // Where somebody waits beside free places, there are no pages for more.
  shared_.wait.update(record.waiting > 0 ? record.running : parts_.options.max_batch,
                      ages_ns / record.running);
  if (trace) trace(record);
}

// What happened goes out, and what ended goes.
void StepLoop::publish() {
  Traced span("publish", SpanKind::kStepPart);
  scheduler_.for_each_touched([&](Sequence& sequence) {
    const Status told = contained("notify", [&] { sequence.publish(shared_.metrics, clock_.now_ns()); });
    if (!told.ok()) sequence.cancel();
  });
  for (const auto& sequence : scheduler_.running_sequences())
    if (sequence->finished() && sequence->times().scheduled > 0)
      shared_.wait.ended(clock_.now_ns() - sequence->times().scheduled);
  scheduler_.retire();
  shared_.pages_idle = parts_.pool->total_idle();
  shared_.pages_used = parts_.pool->total_used() - parts_.pool->total_idle();
  shared_.running = scheduler_.running();
}

void StepLoop::end_all() {
  drain();
  scheduler_.for_each([&](Sequence& sequence) {
    sequence.for_each_choice([](Sequence& choice) { choice.finish(FinishReason::kCancelled); });
    scheduler_.touch(sequence);
  });
  publish();
}

}  // namespace invar
