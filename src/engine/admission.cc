#include "engine/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/size_text.h"

namespace invar {
namespace {

constexpr int32_t kMaxPosition = 1 << 24;  // positions are exact in fp32 below this

uint64_t bytes_of_one(const PoolPlan& plan, int32_t context, int32_t step) {
  uint64_t bytes = 0;
  for (size_t g = 0; g < plan.classes.size(); ++g)
    bytes += uint64_t(plan.placements[g].peak_pages(context, step)) * plan.classes[g].layout.page_bytes();
  return bytes;
}

// The longest context that fits into so many bytes; the need grows with it.
int32_t longest_context(const PoolPlan& plan, int32_t wanted, int32_t step, uint64_t limit) {
  int32_t low = 0, high = wanted;
  while (low < high) {
    const int32_t middle = low + (high - low + 1) / 2;
    if (bytes_of_one(plan, middle, step) <= limit) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

Status too_small(const PoolPlan& plan, const char* codec, const EngineOptions& options, uint64_t limit) {
  const uint64_t needed = bytes_of_one(plan, plan.context, options.max_step_tokens);
  const int32_t longest = longest_context(plan, plan.context, options.max_step_tokens, limit);
  const std::string shorter = longest > 0 ? fmt::format("--ctx {} or smaller, or ", longest) : "";
  return resource_exhausted(fmt::format(
      "the KV cache of one sequence of {} tokens in {} takes {}, the pool may take {} ({}); give {}--memory "
      "{}MiB or more",
      plan.context, codec, size_text(needed), size_text(limit),
      options.memory_bytes > 0 ? "--memory" : "half of the free memory", shorter, (needed >> 20) + 1));
}

}  // namespace

Result<EngineOptions> resolve_options(const EngineOptions& options) {
  const std::pair<const char*, int32_t> positive[] = {{"max_step_tokens", options.max_step_tokens},
                                                      {"max_logit_rows", options.max_logit_rows}};
  for (const auto& [name, value] : positive)
    if (value <= 0) return invalid_argument(fmt::format("{}: {} is not positive", name, value));
  if (options.max_batch < 1 || options.max_batch > kMaxBatch)
    return invalid_argument(
        fmt::format("max_batch: {} is not between 1 and {}", options.max_batch, kMaxBatch));
  if (options.max_queue < 0)
    return invalid_argument(fmt::format("max_queue: {} is negative", options.max_queue));
  if (options.max_stall_ms < 0)
    return invalid_argument(fmt::format("max_stall_ms: {} is negative", options.max_stall_ms));
  if (options.max_wait_s < 0)
    return invalid_argument(fmt::format("max_wait_s: {} is negative", options.max_wait_s));
  if (options.prefill_chunk < 0)
    return invalid_argument(fmt::format("prefill_chunk: {} is negative", options.prefill_chunk));
  EngineOptions resolved = options;
  resolved.max_step_tokens = std::max(options.max_step_tokens, options.max_batch);
  resolved.max_logit_rows = std::max(options.max_logit_rows, options.max_batch);
  return resolved;
}

Result<PoolPlan> plan_pool(const Graph& graph, const KvCodec& codec, int32_t trained_context,
                           const EngineOptions& options, uint64_t free_bytes) {
  if (options.context < 0)
    return invalid_argument(fmt::format("--ctx {}: not a positive number of tokens", options.context));
  const int32_t wanted = options.context > 0 ? options.context : trained_context;
  if (wanted <= 0)
    return invalid_argument("the model does not say how many positions it was trained for; give --ctx N");
  if (trained_context > 0 && wanted > trained_context)
    return invalid_argument(fmt::format(
        "--ctx {}: the model has {} positions; --rope-scaling yarn without a factor goes beyond that", wanted,
        trained_context));
  if (wanted > kMaxPosition)
    return invalid_argument(
        fmt::format("a context of {} positions: the largest possible is --ctx {}", wanted, kMaxPosition));

  PoolPlan plan;
  plan.context = wanted;
  for (const KvGroup& group : graph.kv_groups) {
    plan.placements.push_back({.keep = group.window});
    plan.classes.push_back({{&codec, group.layers, group.kv_heads, group.head_dim}, 0});
  }
  const int32_t step = options.max_step_tokens;
  const uint64_t bytes_each = bytes_of_one(plan, wanted, step);
  const uint64_t limit =
      options.memory_bytes > 0 ? options.memory_bytes : uint64_t(double(free_bytes) * kFreeMemoryShare);
  if (bytes_each > limit) return too_small(plan, codec.name, options, limit);
  for (size_t g = 0; g < plan.classes.size(); ++g) {
    PagePool::SizeClass& c = plan.classes[g];
    // Each group gets the share of the memory that a sequence of full length gives it: at least its peak.
    const int64_t peak = plan.placements[g].peak_pages(wanted, step), all = peak * options.max_batch;
    const uint64_t affordable =
        bytes_each == 0 ? 0 : uint64_t((unsigned __int128)limit * uint64_t(peak) / bytes_each);
    c.pages = int32_t(std::min({affordable, uint64_t(all), uint64_t{INT32_MAX}}));
  }
  return plan;
}

Status check_request(const GenerateRequest& request, int32_t vocab, int32_t context,
                     int32_t trained_context) {
  const int64_t prompt = int64_t(request.prompt.size());
  if (prompt == 0) return invalid_argument("prompt: no tokens");
  if (request.max_tokens < 0)
    return invalid_argument(fmt::format("max_tokens: {} is negative", request.max_tokens));
  if (prompt + (request.max_tokens > 0 ? 1 : 0) > context) {
    const bool raisable = trained_context <= 0 || context < trained_context;
    const std::string remedy =
        !raisable ? "which is what the model was trained for; shorten it"
        : trained_context > 0
            ? fmt::format("set by --ctx; shorten it or raise --ctx (up to {})", trained_context)
            : "set by --ctx; shorten it or raise --ctx";
    return invalid_argument(fmt::format("prompt: {} tokens do not fit into the context of {} tokens{}, {}",
                                        prompt, context,
                                        prompt == context ? " with one more for the answer" : "", remedy));
  }
  for (size_t i = 0; i < request.prompt.size(); ++i)
    if (request.prompt[i] < 0 || request.prompt[i] >= vocab)
      return invalid_argument(fmt::format(
          "prompt: token id {} at position {} is outside the vocabulary of {}", request.prompt[i], i, vocab));
  for (const int32_t id : request.stop_ids)
    if (id < 0 || id >= vocab)
      return invalid_argument(
          fmt::format("stop_ids: token id {} is outside the vocabulary of {}", id, vocab));
  if (request.all_prompt_logits && !request.on_logits)
    return invalid_argument("all_prompt_logits: there is no on_logits to take them");
  if (request.prompt_logprobs < -1 || request.prompt_logprobs > vocab)
    return invalid_argument(
        fmt::format("prompt_logprobs: {} is outside [-1, {}]", request.prompt_logprobs, vocab));
  if (request.priority < -kMaxPriority || request.priority > kMaxPriority)
    return invalid_argument(
        fmt::format("priority: {} is not between -{} and {}", request.priority, kMaxPriority, kMaxPriority));
  return request.sampling.validate(vocab);
}

}  // namespace invar
