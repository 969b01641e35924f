#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/inbox.h"
#include "engine/admission.h"
#include "engine/batch.h"
#include "engine/prompt_scorer.h"
#include "engine/request_metrics.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/wait_estimate.h"
#include "kv/page_pool.h"
#include "sampling/sampler.h"

namespace invar {
namespace {

// EngineStats that other threads may read while the engine counts.
struct Counters {
  std::atomic<int64_t> submitted{0}, steps{0}, prompt_tokens{0}, recomputed_tokens{0}, preemptions{0},
      pages_used{0}, pages_idle{0}, prefix_evictions{0};
  std::atomic<int32_t> running{0};
};

// The choices of one request: the first computes the prompt, the others are its forks.
struct Wanted {
  GenerateRequest request;
  std::shared_ptr<Stream> stream;
};
struct Arrival {
  std::vector<Wanted> choices;
  int64_t submitted_ns;
};

// What a further choice asks for: other noise, a guard of its own, and nothing of the prompt.
GenerateRequest further_choice(const GenerateRequest& first, int32_t index) {
  GenerateRequest r;
  r.prompt = first.prompt;
  r.max_tokens = first.max_tokens;
  r.sampling = first.sampling;
  r.sampling.sample_index += uint32_t(index);
  r.stop_ids = first.stop_ids;
  r.ignore_eos = first.ignore_eos;
  r.cache_salt = first.cache_salt;
  r.priority = first.priority;
  r.tenant = first.tenant;
  if (first.guard != nullptr) r.guard = first.guard->clone();
  r.notify = first.notify;
  return r;
}

// Runs f; what it throws becomes a status. Where the engine meets the exceptions of others: of the backend,
// of observers and of guards.
template <class F>
Status guarded(const char* what, F f) {
  try {
    f();
    return {};
  } catch (const std::bad_alloc&) {
    return resource_exhausted(fmt::format("out of memory in {}; lower --memory or --max-batch", what));
  } catch (const std::exception& error) {
    return internal_error(fmt::format("{} failed: {}", what, error.what()));
  } catch (...) {
    return internal_error(fmt::format("{} failed with an unknown exception", what));
  }
}

// Read before the step runs: a commit moves what counts as computed.
StepRecord describe(const Plan& plan) {
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

struct Engine::Impl {
  Impl(EngineModel m, std::unique_ptr<Backend> b, std::unique_ptr<Executable> e, PoolPlan plan,
       std::unique_ptr<PagePool> p, const SchedulerLimits& limits, const EngineOptions& options)
      : model(std::move(m)),
        backend(std::move(b)),
        executable(std::move(e)),
        placements(std::move(plan.placements)),
        context(plan.context),
        pool(std::move(p)),
        prefixes(pool.get(), placements, options.prefix_cache_bytes),
        scheduler(limits, &prefixes, placements),
        sampler(backend->row_kernels()),
        scorer(backend->row_kernels()),
        clock(options.clock != nullptr ? *options.clock : machine_clock()),
        max_running(limits.max_running),
        max_live(int64_t{limits.max_running} + options.max_queue),
        max_wait_s(options.max_wait_s),
        mask_words((size_t(model.graph->vocab) + 31) / 32),
        metrics(context) {}

  bool step();
  Status enter(int32_t choices);
  double predicted_wait_s(int64_t live) const;
  bool drain();
  std::unique_ptr<Sequence> sequence_of(Wanted& wanted, int64_t submitted_ns);
  void commit_row(size_t row, const StepOutputs& outputs);
  void choose(Sequence& sequence, std::span<const float> logits);
  void count(StepRecord& record);
  void publish();
  void estimate_wait(const StepRecord& record);
  void run();
  void end_all();

  EngineModel model;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Executable> executable;
  std::vector<KvPlacement> placements;
  int32_t context;
  std::unique_ptr<PagePool> pool;
  PrefixCache prefixes;
  Scheduler scheduler;
  Sampler sampler;
  PromptScorer scorer;
  Batch batch;
  const Clock& clock;
  const int32_t max_running;
  const int64_t max_live;  // answers, running and waiting
  const int32_t max_wait_s;
  WaitEstimate wait;
  std::vector<uint32_t> mask_words;
  Inbox<Arrival> inbox;
  RequestMetrics metrics;
  Counters counters;
  std::function<void(const StepRecord&)> trace;
  std::atomic<bool> stopping{false};
  std::thread thread;
};

// Counts what is about to be submitted, unless there is too much already.
Status Engine::Impl::enter(int32_t choices) {
  const int64_t live = (counters.submitted += choices) - metrics.requests_ended();
  const double wait_s = predicted_wait_s(live - choices);
  if (live <= max_live && (max_wait_s == 0 || wait_s <= max_wait_s)) return {};
  counters.submitted -= choices;
  if (live <= max_live)
    return resource_exhausted(fmt::format(
        "the wait would be {:.0f} s, which is more than --max-wait {}: {} answers run or wait; try "
        "again later",
        wait_s, max_wait_s, live - choices));
  return resource_exhausted(
      fmt::format("the queue is full: {} answers run or wait, {} more would be beyond --max-batch and "
                  "--max-queue ({} together); "
                  "try again later",
                  live - choices, choices, max_live));
}

// Of a request that comes when so many run or wait.
double Engine::Impl::predicted_wait_s(int64_t live) const {
  return double(wait.predict_ns(live)) * 1e-9;
}

bool Engine::Impl::step() {
  const int64_t started = clock.now_ns();
  const bool changed = drain();
  const Plan& plan = scheduler.plan();
  if (plan.rows.empty()) {
    CHECK(scheduler.empty());
    return changed;
  }
  StepRecord record = describe(plan);
  record.start_ns = started;
  record.running = scheduler.running();
  record.waiting = scheduler.waiting();
  StepOutputs outputs;
  const Status ran = guarded("the forward pass", [&] {
    batch.gather(plan.rows, *pool, model.graph->kv_groups);
    const int64_t before = clock.now_ns();
    outputs = executable->run(batch.inputs());
    record.forward_ns = clock.now_ns() - before;
  });
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    plan.rows[i].sequence->scheduled(started);
    if (ran.ok()) {
      commit_row(i, outputs);
    } else {
      plan.rows[i].sequence->fail(ran);
    }
  }
  record.total_ns = clock.now_ns() - started;
  if (ran.ok()) scheduler.ran(record.total_ns);
  count(record);
  publish();
  return true;
}

// New requests become sequences, cancelled ones end. True if anything happened.
bool Engine::Impl::drain() {
  std::vector<Arrival> arrived = inbox.drain();
  for (Arrival& arrival : arrived) {
    auto first = sequence_of(arrival.choices[0], arrival.submitted_ns);
    for (Wanted& further : std::span(arrival.choices).subspan(1))
      first->add_fork(sequence_of(further, arrival.submitted_ns));
    scheduler.add(std::move(first));
  }
  bool cancelled = false;
  scheduler.for_each([&](Sequence& sequence) {
    if (!sequence.cancelled()) return;
    sequence.finish(FinishReason::kCancelled);
    cancelled = true;
  });
  if (cancelled) publish();
  return cancelled || !arrived.empty();
}

std::unique_ptr<Sequence> Engine::Impl::sequence_of(Wanted& wanted, int64_t submitted_ns) {
  return std::make_unique<Sequence>(std::move(wanted.request), std::move(wanted.stream), submitted_ns,
                                    &prefixes, KvCache(pool.get(), placements), context);
}

// A row that met NaN or infinity ends its own request and no other; its slots were only reserved.
void Engine::Impl::commit_row(size_t index, const StepOutputs& outputs) {
  const Row& row = batch.rows()[index];
  Sequence& sequence = *row.sequence;
  const auto faults = outputs.faults.subspan(size_t(batch.first_token(index)), row.tokens.size());
  const auto fault = std::find_if(faults.begin(), faults.end(), [](uint8_t f) { return f != 0; });
  if (fault != faults.end()) {
    return sequence.fail(
        internal_error(fmt::format("the model's numbers became NaN or infinite at position {}",
                                   row.first_position + (fault - faults.begin()))));
  }
  const size_t vocab = size_t(model.graph->vocab);
  const auto logits =
      outputs.logits.subspan(size_t(batch.first_logit(index)) * vocab, size_t(row.logits) * vocab);
  const Status committed =
      guarded("the request's observer", [&] { sequence.commit(int32_t(row.tokens.size()), logits, scorer); });
  if (!committed.ok()) sequence.fail(committed);
  if (sequence.pending() > 0) return;
  for (const auto& fork : sequence.forks()) {
    fork->split_from(sequence);
    choose(*fork, logits);
  }
  scheduler.add_forks(sequence, sequence.release_forks());
  choose(sequence, logits);
}

// The next token of a sequence that is to choose one, from the last row of the logits.
void Engine::Impl::choose(Sequence& sequence, std::span<const float> logits) {
  if (!sequence.chooses()) return;
  const Status chosen = guarded("the request's sampling or guard", [&] {
    Result<Choice> choice = sequence.choose(logits.last(size_t(model.graph->vocab)), sampler, mask_words);
    if (!choice.ok()) return sequence.fail(choice.status());
    sequence.take(std::move(*choice), model.graph->vocab);
  });
  if (!chosen.ok()) sequence.fail(chosen);
}

void Engine::Impl::publish() {
  scheduler.for_each([&](Sequence& sequence) {
    const Status told = guarded("notify", [&] { sequence.publish(metrics, clock.now_ns()); });
    if (!told.ok()) sequence.cancel();
  });
  for (const auto& sequence : scheduler.running_sequences())
    if (sequence->finished() && sequence->times().scheduled > 0)
      wait.ended(clock.now_ns() - sequence->times().scheduled);
  scheduler.retire();
  counters.pages_idle = pool->total_idle();
  counters.pages_used = pool->total_used() - pool->total_idle();
  counters.running = scheduler.running();
}

// Where somebody waits beside free places, there are no pages for more.
void Engine::Impl::estimate_wait(const StepRecord& record) {
  int64_t ages = 0;
  for (const auto& sequence : scheduler.running_sequences())
    if (sequence->times().scheduled > 0) ages += record.start_ns - sequence->times().scheduled;
  wait.update(record.waiting > 0 ? record.running : max_running, ages / record.running);
}

void Engine::Impl::count(StepRecord& record) {
  record.step = counters.steps++;
  counters.prompt_tokens += record.prompt_tokens;
  counters.recomputed_tokens += record.recomputed_tokens;
  counters.preemptions += record.preempted;
  counters.prefix_evictions = prefixes.evictions();
  metrics.step(record.tokens);
  estimate_wait(record);
  record.pages_idle = pool->total_idle();
  record.pages_used = pool->total_used() - record.pages_idle;
  if (trace) trace(record);
}

void Engine::Impl::run() {
  while (!stopping.load(std::memory_order_acquire)) {
    if (step()) {
      std::this_thread::yield();  // whoever sends what was published goes first, on this core if need be
    } else {
      inbox.wait();
    }
  }
}

void Engine::Impl::end_all() {
  drain();
  scheduler.for_each([](Sequence& sequence) { sequence.finish(FinishReason::kCancelled); });
  publish();
}

Result<std::unique_ptr<Engine>> Engine::create(std::shared_ptr<const Model> model,
                                               std::unique_ptr<Backend> backend,
                                               const EngineOptions& options) {
  EngineModel parts{&model->graph(), &model->weights(), model->info().context_length,
                    model->packed_in_memory() ? 0 : model->packed_bytes(), nullptr};
  parts.owner = std::move(model);
  return create(std::move(parts), std::move(backend), options);
}

Result<std::unique_ptr<Engine>> Engine::create(EngineModel model, std::unique_ptr<Backend> backend,
                                               const EngineOptions& given) {
  ASSIGN_OR_RETURN(const EngineOptions options, resolve_options(given));
  const KvCodec* codec = find_kv_codec(options.kv);
  if (codec == nullptr) {
    std::string known;
    for (const KvCodec& c : kv_codecs())
      known += fmt::format("{}{}", known.empty() ? "" : ", ", c.name);
    return invalid_argument(fmt::format("--kv {}: unknown; there are {}", options.kv, known));
  }
  if (!backend->supports(*codec))
    return unsupported(fmt::format("--kv {}: {} cannot do it", options.kv, backend->name()));

  ASSIGN_OR_RETURN(auto executable, backend->compile(*model.graph, *model.weights,
                                                     {options.max_step_tokens, options.max_logit_rows}));
  const uint64_t taken = model.mapped_bytes, free = free_memory_bytes();
  ASSIGN_OR_RETURN(PoolPlan plan, plan_pool(*model.graph, *codec, model.context_length, options,
                                            free > taken ? free - taken : 0));
  ASSIGN_OR_RETURN(auto pool, PagePool::create(plan.classes));
  const SchedulerLimits limits{options.max_step_tokens, options.prefill_chunk, options.max_batch,
                               options.max_logit_rows, int64_t{options.max_stall_ms} * 1'000'000};
  return std::unique_ptr<Engine>(
      new Engine(std::make_unique<Impl>(std::move(model), std::move(backend), std::move(executable),
                                        std::move(plan), std::move(pool), limits, options)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Engine::~Engine() {
  impl_->stopping.store(true, std::memory_order_release);
  impl_->inbox.stop_waiting();
  if (impl_->thread.joinable()) impl_->thread.join();
  impl_->end_all();
}

Result<std::shared_ptr<Stream>> Engine::submit(GenerateRequest request) {
  ASSIGN_OR_RETURN(std::vector<std::shared_ptr<Stream>> streams, submit(std::move(request), 1));
  return std::move(streams[0]);
}

Result<std::vector<std::shared_ptr<Stream>>> Engine::submit(GenerateRequest request, int32_t choices) {
  if (choices < 1 || choices > kMaxChoices)
    return invalid_argument(fmt::format("n: {} is not between 1 and {}", choices, kMaxChoices));
  RETURN_IF_ERROR(
      check_request(request, impl_->model.graph->vocab, impl_->context, impl_->model.context_length));
  RETURN_IF_ERROR(impl_->enter(choices));
  std::vector<std::shared_ptr<Stream>> streams;
  Arrival arrival{.submitted_ns = impl_->clock.now_ns()};
  for (int32_t i = 0; i < choices; ++i) {
    streams.push_back(std::make_shared<Stream>());
    arrival.choices.push_back({i == 0 ? GenerateRequest() : further_choice(request, i), streams.back()});
  }
  arrival.choices[0].request = std::move(request);
  impl_->inbox.push(std::move(arrival));
  return streams;
}

bool Engine::step() {
  return impl_->step();
}

void Engine::start() {
  CHECK(!impl_->thread.joinable());
  impl_->thread = std::thread([this] { impl_->run(); });
}

EngineStats Engine::stats() const {
  const Counters& c = impl_->counters;
  const RequestMetrics& m = impl_->metrics;
  const int32_t running = c.running;
  // Read in this order, so that a request that ends meanwhile is not missed among the submitted ones.
  const int64_t ended = m.requests_ended();
  const int32_t live = int32_t(c.submitted - ended);
  return {.steps = c.steps,
          .prompt_tokens = c.prompt_tokens,
          .recomputed_tokens = c.recomputed_tokens,
          .generated_tokens = m.generated_tokens(),
          .preemptions = c.preemptions,
          .live = live,
          .running = running,
          .waiting = std::max(0, live - running),
          .predicted_wait_s = impl_->predicted_wait_s(live),
          .prefix_evictions = c.prefix_evictions,
          .pages_used = c.pages_used,
          .pages_idle = c.pages_idle,
          .pages_total = impl_->pool->total_pages(),
          .kv_bytes_total = impl_->pool->bytes(),
          .scratch_bytes = impl_->executable->scratch_bytes(),
          .step_tokens = m.step_tokens(),
          .requests = m.snapshot()};
}

double Engine::predicted_wait_s() const {
  const int64_t ended = impl_->metrics.requests_ended();
  return impl_->predicted_wait_s(impl_->counters.submitted - ended);
}

int32_t Engine::context() const {
  return impl_->context;
}

void Engine::set_trace(std::function<void(const StepRecord&)> trace) {
  impl_->trace = std::move(trace);
}

}  // namespace invar
