#pragma once
// Admission: exact byte counts. How large the KV pool is, how long a sequence can be in it, and which
// requests can never run. Pure functions, called at create() and submit().

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "engine/request.h"
#include "graph/graph.h"
#include "kv/page_pool.h"
#include "kv/placement.h"

namespace invar {

// The KV pool's bound when no --memory is given: this share of the memory that the weights leave free.
inline constexpr double kFreeMemoryShare = 0.5;

struct PoolPlan {
  std::vector<PagePool::SizeClass> classes;  // [groups]
  std::vector<KvPlacement> placements;       // [groups]
  int32_t context = 0;                       // positions that one sequence can have
};

// The options with every budget of a step raised to what max_batch sequences need: a token and a row of
// logits each. Refuses what is out of range.
Result<EngineOptions> resolve_options(const EngineOptions& options);

// options: resolved. free_bytes: memory left after the weights; read only when options.memory_bytes is 0. The
// context depends on the options and the model alone; a pool that cannot hold one sequence of it is refused.
Result<PoolPlan> plan_pool(const Graph& graph, const KvCodec& codec, int32_t trained_context,
                           const EngineOptions& options, uint64_t free_bytes);

// trained_context: the bound that no flag can raise.
Status check_request(const GenerateRequest& request, int32_t vocab, int32_t context, int32_t trained_context);

}  // namespace invar
