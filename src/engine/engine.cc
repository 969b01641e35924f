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
#include "engine/runner.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "kv/page_pool.h"
#include "sampling/sampler.h"

namespace invar {
namespace {

// EngineStats that other threads may read while the engine counts.
struct Counters {
  std::atomic<int64_t> steps{0}, prompt_tokens{0}, recomputed_tokens{0}, generated_tokens{0}, pages_used{0};
  std::atomic<int32_t> waiting{0}, running{0};
};

struct Arrival {
  GenerateRequest request;
  std::shared_ptr<Stream> stream;
};

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
  return r;
}

}  // namespace

struct Engine::Impl {
  Impl(EngineModel m, std::unique_ptr<Backend> b, std::unique_ptr<Executable> e, PoolPlan plan,
       std::unique_ptr<PagePool> p, const SchedulerLimits& limits)
      : model(std::move(m)),
        backend(std::move(b)),
        runner(std::move(e)),
        placements(std::move(plan.placements)),
        context(plan.context),
        pool(std::move(p)),
        scheduler(limits, pool.get(), placements),
        sampler(backend->row_kernels()),
        mask_words((size_t(model.graph->vocab) + 31) / 32) {}

  bool step();
  bool drain();
  void commit_row(size_t row, const StepOutputs& outputs);
  void fail_row(const Row& row, const Status& error);
  void publish();
  void run();
  void end_all();

  EngineModel model;
  std::unique_ptr<Backend> backend;
  Runner runner;
  std::vector<KvPlacement> placements;
  int32_t context;
  std::unique_ptr<PagePool> pool;
  Scheduler scheduler;
  Sampler sampler;
  Batch batch;
  std::vector<uint32_t> mask_words;
  uint64_t arrivals = 0;
  Inbox<Arrival> inbox;
  Counters counters;
  std::function<void(const StepRecord&)> trace;
  std::atomic<bool> stopping{false};
  std::thread thread;
};

bool Engine::Impl::step() {
  const int64_t started = now_ns();
  const bool changed = drain();
  const Plan& plan = scheduler.plan();
  if (plan.rows.empty()) {
    CHECK(scheduler.running().empty() && scheduler.waiting().empty());
    return changed;
  }
  StepRecord record = describe(plan);
  StepOutputs outputs;
  const Status ran = guarded("the forward pass", [&] {
    batch.gather(plan.rows, *pool, model.graph->kv_groups);
    outputs = runner.forward(batch);
    record.forward_ns = runner.forward_ns();
  });
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const Status done =
        ran.ok() ? guarded("the request's sampling, observer or guard", [&] { commit_row(i, outputs); })
                 : ran;
    if (!done.ok()) fail_row(plan.rows[i], done);
  }
  record.step = counters.steps++;
  counters.prompt_tokens += record.prompt_tokens;
  counters.recomputed_tokens += record.recomputed_tokens;
  record.total_ns = now_ns() - started;
  if (trace) trace(record);
  publish();
  return true;
}

// New requests become sequences, cancelled ones end. True if anything happened.
bool Engine::Impl::drain() {
  std::vector<Arrival> arrived = inbox.drain();
  for (Arrival& a : arrived) {
    scheduler.add(std::make_unique<Sequence>(arrivals++, std::move(a.request), std::move(a.stream),
                                             KvCache(pool.get(), placements), context));
  }
  bool cancelled = false;
  const auto look = [&](const std::unique_ptr<Sequence>& sequence) {
    if (!sequence->cancelled()) return;
    sequence->finish(FinishReason::kCancelled);
    cancelled = true;
  };
  std::for_each(scheduler.running().begin(), scheduler.running().end(), look);
  std::for_each(scheduler.waiting().begin(), scheduler.waiting().end(), look);
  if (cancelled) publish();
  return cancelled || !arrived.empty();
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
  sequence.commit(int32_t(row.tokens.size()), logits);
  if (!sequence.chooses()) return;
  Result<Choice> choice = sequence.choose(logits.last(vocab), sampler, mask_words);
  if (choice.ok()) {
    sequence.take(std::move(*choice));
  } else {
    sequence.fail(choice.status());
  }
}

void Engine::Impl::fail_row(const Row& row, const Status& error) {
  KvCache& cache = row.sequence->cache();
  cache.truncate(cache.length());
  row.sequence->fail(error);
}

void Engine::Impl::publish() {
  for (const auto& sequence : scheduler.running())
    counters.generated_tokens += sequence->publish();
  for (const auto& sequence : scheduler.waiting())
    counters.generated_tokens += sequence->publish();
  scheduler.retire();
  counters.pages_used = pool->total_used();
  counters.running = int32_t(scheduler.running().size());
  counters.waiting = int32_t(scheduler.waiting().size());
}

void Engine::Impl::run() {
  while (!stopping.load(std::memory_order_acquire))
    if (!step()) inbox.wait();
}

void Engine::Impl::end_all() {
  drain();
  for (const auto& sequence : scheduler.running())
    sequence->finish(FinishReason::kCancelled);
  for (const auto& sequence : scheduler.waiting())
    sequence->finish(FinishReason::kCancelled);
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
                               options.max_logit_rows};
  return std::unique_ptr<Engine>(
      new Engine(std::make_unique<Impl>(std::move(model), std::move(backend), std::move(executable),
                                        std::move(plan), std::move(pool), limits)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Engine::~Engine() {
  impl_->stopping.store(true, std::memory_order_release);
  impl_->inbox.stop_waiting();
  if (impl_->thread.joinable()) impl_->thread.join();
  impl_->end_all();
}

Result<std::shared_ptr<Stream>> Engine::submit(GenerateRequest request) {
  RETURN_IF_ERROR(
      check_request(request, impl_->model.graph->vocab, impl_->context, impl_->model.context_length));
  auto stream = std::make_shared<Stream>();
  impl_->inbox.push({std::move(request), stream});
  return stream;
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
  return {.steps = c.steps,
          .prompt_tokens = c.prompt_tokens,
          .recomputed_tokens = c.recomputed_tokens,
          .generated_tokens = c.generated_tokens,
          .waiting = c.waiting,
          .running = c.running,
          .pages_used = c.pages_used,
          .pages_total = impl_->pool->total_pages(),
          .kv_bytes_total = impl_->pool->bytes(),
          .scratch_bytes = impl_->runner.scratch_bytes()};
}

int32_t Engine::context() const {
  return impl_->context;
}

void Engine::set_trace(std::function<void(const StepRecord&)> trace) {
  impl_->trace = std::move(trace);
}

}  // namespace invar
