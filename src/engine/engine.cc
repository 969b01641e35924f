#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/free_memory.h"
#include "base/size_text.h"
#include "engine/admission.h"
#include "engine/shared_state.h"
#include "engine/step_loop.h"

namespace invar {
namespace {

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

}  // namespace

struct Engine::Impl {
  explicit Impl(EngineParts p)
      : parts(std::move(p)),
        shared(parts.context),
        loop(parts, shared),
        max_live(int64_t{parts.options.max_batch} + parts.options.max_queue) {}

  Status enter(int32_t choices);
  void run();

  const EngineParts parts;
  SharedState shared;
  StepLoop loop;
  const int64_t max_live;  // answers, running and waiting
  std::atomic<bool> stopping{false};
  std::thread thread;
};

// Counts what is about to be submitted, unless there is too much already.
Status Engine::Impl::enter(int32_t choices) {
  if (choices > max_live)
    return invalid_argument(fmt::format(
        "n: {} answers never fit into --max-batch and --max-queue ({} together)", choices, max_live));
  const int64_t live = (shared.submitted += choices) - shared.metrics.requests_ended();
  const double wait_s = shared.predicted_wait_s(live - choices);
  const int32_t max_wait_s = parts.options.max_wait_s;
  if (live <= max_live && (max_wait_s == 0 || wait_s <= max_wait_s)) return {};
  shared.submitted -= choices;
  if (live <= max_live)
    return resource_exhausted(fmt::format(
        "the wait would be {:.1f} s, which is more than --max-wait {}: {} answers run or wait; try "
        "again later",
        wait_s, max_wait_s, live - choices));
  return resource_exhausted(
      fmt::format("the queue is full: {} answers run or wait, {} more would be beyond --max-batch and "
                  "--max-queue ({} together); "
                  "try again later",
                  live - choices, choices, max_live));
}

void Engine::Impl::run() {
  while (!stopping.load(std::memory_order_acquire)) {
    if (loop.step()) {
      std::this_thread::yield();  // whoever sends what was published goes first, on this core if need be
    } else {
      shared.inbox.wait();
    }
  }
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
  for (const PagePool::SizeClass& size_class : plan.classes) {
    const uint64_t page = size_class.layout.page_bytes(), kept = options.prefix_cache_bytes;
    if (kept > 0 && kept < page)
      return invalid_argument(
          fmt::format("--prefix-cache: {} keep nothing, a page of {} tokens takes {}; give more, or off",
                      size_text(kept), kPageTokens, size_text(page)));
  }
  ASSIGN_OR_RETURN(auto pool, PagePool::create(plan.classes));
  return std::unique_ptr<Engine>(new Engine(std::make_unique<Impl>(
      EngineParts{std::move(model), std::move(backend), std::move(executable), std::move(pool),
                  std::move(plan.placements), plan.context, options})));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Engine::~Engine() {
  impl_->stopping.store(true, std::memory_order_release);
  impl_->shared.inbox.stop_waiting();
  if (impl_->thread.joinable()) impl_->thread.join();
  impl_->loop.end_all();
}

Result<std::shared_ptr<Stream>> Engine::submit(GenerateRequest request) {
  ASSIGN_OR_RETURN(std::vector<std::shared_ptr<Stream>> streams, submit(std::move(request), 1));
  return std::move(streams[0]);
}

Result<std::vector<std::shared_ptr<Stream>>> Engine::submit(GenerateRequest request, int32_t choices) {
  const EngineParts& parts = impl_->parts;
  if (choices < 1 || choices > kMaxChoices)
    return invalid_argument(fmt::format("n: {} is not between 1 and {}", choices, kMaxChoices));
  RETURN_IF_ERROR(
      check_request(request, parts.model.graph->vocab, parts.context, parts.model.context_length));
  std::vector<std::shared_ptr<Stream>> handles;
  Arrival arrival{.submitted_ns = parts.clock().now_ns()};
  for (int32_t i = 0; i < choices; ++i) {
    auto stream = std::make_shared<Stream>(impl_->shared.cancels);
    handles.push_back(Stream::handle_of(stream));
    arrival.choices.push_back({i == 0 ? GenerateRequest() : further_choice(request, i), std::move(stream)});
  }
  arrival.choices[0].request = std::move(request);
  RETURN_IF_ERROR(impl_->enter(choices));  // last: what throws before has counted nothing
  impl_->shared.inbox.push(std::move(arrival));
  return handles;
}

bool Engine::step() {
  return impl_->loop.step();
}

void Engine::start() {
  CHECK(!impl_->thread.joinable());
  impl_->thread = std::thread([this] { impl_->run(); });
}

EngineStats Engine::stats() const {
  const SharedState& s = impl_->shared;
  const int32_t running = s.running, live = int32_t(s.live());
  return {.steps = s.steps,
          .prompt_tokens = s.prompt_tokens,
          .recomputed_tokens = s.recomputed_tokens,
          .generated_tokens = s.metrics.generated_tokens(),
          .preemptions = s.preemptions,
          .live = live,
          .running = running,
          .waiting = std::max(0, live - running),
          .predicted_wait_s = s.predicted_wait_s(live),
          .prefix_evictions = s.prefix_evictions,
          .pages_used = s.pages_used,
          .pages_idle = s.pages_idle,
          .pages_total = impl_->parts.pool->total_pages(),
          .kv_bytes_total = impl_->parts.pool->bytes(),
          .scratch_bytes = impl_->parts.executable->scratch_bytes(),
          .step_tokens = s.metrics.step_tokens(),
          .requests = s.metrics.snapshot()};
}

double Engine::predicted_wait_s() const {
  return impl_->shared.predicted_wait_s(impl_->shared.live());
}

int32_t Engine::context() const {
  return impl_->parts.context;
}

int64_t Engine::max_answers() const {
  return impl_->max_live;
}

void Engine::set_trace(std::function<void(const StepRecord&)> trace) {
  impl_->loop.trace = std::move(trace);
}

}  // namespace invar
