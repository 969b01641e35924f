#include "engine/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/size_text.h"

namespace invar {
namespace {

constexpr int32_t kMaxPosition = 1 << 24;  // positions are exact in fp32 below this

struct SequenceNeed {
  uint64_t bytes = 0;  // of all groups
  bool fits = true;    // into the classes given
};

SequenceNeed need_of(const PoolPlan& plan, int32_t context, int32_t step) {
  SequenceNeed need;
  for (size_t g = 0; g < plan.classes.size(); ++g) {
    const int32_t pages = plan.placements[g].peak_pages(context, step);
    need.bytes += uint64_t(pages) * plan.classes[g].layout.page_bytes();
    need.fits = need.fits && pages <= plan.classes[g].pages;
  }
  return need;
}

// The longest context whose pages exist; need_of grows with it.
int32_t longest_context(const PoolPlan& plan, int32_t wanted, int32_t step) {
  int32_t low = 0, high = wanted;
  while (low < high) {
    const int32_t middle = low + (high - low + 1) / 2;
    if (need_of(plan, middle, step).fits) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

uint64_t read_number(const std::string& path, uint64_t otherwise) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? value : otherwise;
}

}  // namespace

Result<PoolPlan> plan_pool(const Graph& graph, const KvCodec& codec, int32_t trained_context,
                           const EngineOptions& options, uint64_t free_bytes) {
  const int32_t wanted = options.context > 0 ? options.context : trained_context;
  if (options.context < 0 || wanted <= 0)
    return invalid_argument(fmt::format("--context: {} is not a positive number of tokens", wanted));
  if (trained_context > 0 && wanted > trained_context)
    return invalid_argument(
        fmt::format("--context {}: the model was trained for {} positions", wanted, trained_context));
  if (wanted > kMaxPosition)
    return invalid_argument(fmt::format("--context {}: the largest possible is {}", wanted, kMaxPosition));

  PoolPlan plan;
  for (const KvGroup& group : graph.kv_groups) {
    plan.placements.push_back({.keep = group.window});
    plan.classes.push_back({{&codec, group.layers, group.kv_heads, group.head_dim}, 0});
  }
  const int32_t step = options.max_step_tokens;
  const uint64_t bytes_each = need_of(plan, wanted, step).bytes;
  const uint64_t limit =
      options.memory_bytes > 0 ? options.memory_bytes : uint64_t(double(free_bytes) * kFreeMemoryShare);
  for (size_t g = 0; g < plan.classes.size(); ++g) {
    PagePool::SizeClass& c = plan.classes[g];
    // Each group gets the share of the memory that a sequence of full length gives it.
    const int64_t peak = plan.placements[g].peak_pages(wanted, step), all = peak * options.max_batch;
    const uint64_t affordable =
        bytes_each == 0 ? 0 : uint64_t((unsigned __int128)limit * uint64_t(peak) / bytes_each);
    c.pages = int32_t(std::min({affordable, uint64_t(all), uint64_t{INT32_MAX}}));
  }

  plan.context = longest_context(plan, wanted, step);
  if (plan.context == 0 || (options.context > 0 && plan.context < wanted)) {
    const int32_t least = options.context > 0 ? wanted : 1;
    return resource_exhausted(fmt::format(
        "the KV cache of {} tokens in {} takes {}, the pool may take {}; raise --memory or lower --context",
        least, codec.name, size_text(need_of(plan, least, step).bytes), size_text(limit)));
  }
  return plan;
}

Status check_request(const GenerateRequest& request, int32_t vocab, int32_t context) {
  const int64_t prompt = int64_t(request.prompt.size());
  if (prompt == 0) return invalid_argument("prompt: no tokens");
  if (request.max_tokens < 0)
    return invalid_argument(fmt::format("max_tokens: {} is negative", request.max_tokens));
  if (prompt + (request.max_tokens > 0 ? 1 : 0) > context)
    return invalid_argument(fmt::format("prompt: {} tokens do not fit into the context of {} tokens{}",
                                        prompt, context,
                                        prompt == context ? " with one more for the answer" : ""));
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
  return request.sampling.validate(vocab);
}

uint64_t free_memory_bytes(const std::string& root) {
  uint64_t available = 0;
  std::ifstream meminfo(root + "/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);)
    if (line.rfind("MemAvailable:", 0) == 0) available = std::strtoull(line.c_str() + 13, nullptr, 10) * 1024;
  const uint64_t limit = read_number(root + "/sys/fs/cgroup/memory.max", UINT64_MAX);  // "max" is no number
  if (limit != UINT64_MAX) {
    const uint64_t used = std::min(limit, read_number(root + "/sys/fs/cgroup/memory.current", 0));
    available = std::min(available, limit - used);
  }
  return available;
}

}  // namespace invar
