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

// What is left for weights and caches when no --memory is given: this share of the machine's free memory.
inline constexpr double kFreeMemoryShare = 0.5;

struct PoolPlan {
  std::vector<PagePool::SizeClass> classes;  // [groups]
  std::vector<KvPlacement> placements;       // [groups]
  int32_t context = 0;                       // positions that one sequence can have
};

// free_bytes: memory left after the weights; read only when options.memory_bytes is 0.
Result<PoolPlan> plan_pool(const Graph& graph, const KvCodec& codec, int32_t trained_context,
                           const EngineOptions& options, uint64_t free_bytes);

Status check_request(const GenerateRequest& request, int32_t vocab, int32_t context);

// Bytes that can be had without swapping, bounded by the cgroup's limit. `root` stands before every path.
uint64_t free_memory_bytes(const std::string& root = "");

}  // namespace invar
