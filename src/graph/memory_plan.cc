#include "graph/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace invar {

// Largest first, each at the lowest gap among the buffers alive at the same time: near optimal for the few
// sizes of a transformer, quadratic in the number of buffers (thousands at most).
MemoryPlan plan_memory(std::span<const BufferUse> uses) {
  constexpr size_t kAlign = 64;
  const auto padded = [&](size_t i) { return (uses[i].bytes + kAlign - 1) / kAlign * kAlign; };
  std::vector<size_t> order(uses.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return uses[a].bytes != uses[b].bytes ? uses[a].bytes > uses[b].bytes : a < b;
  });

  MemoryPlan plan;
  plan.offsets.assign(uses.size(), 0);
  std::vector<size_t> by_offset;  // placed buffers, ascending offset
  for (size_t i : order) {
    size_t offset = 0;
    for (size_t other : by_offset) {
      const bool together =
          uses[i].first_time <= uses[other].last_time && uses[other].first_time <= uses[i].last_time;
      if (!together) continue;
      if (offset + padded(i) <= plan.offsets[other]) break;
      offset = std::max(offset, plan.offsets[other] + padded(other));
    }
    plan.offsets[i] = offset;
    plan.bytes = std::max(plan.bytes, offset + padded(i));
    by_offset.insert(std::upper_bound(by_offset.begin(), by_offset.end(), i,
                                      [&](size_t a, size_t b) { return plan.offsets[a] < plan.offsets[b]; }),
                     i);
  }
  return plan;
}

}  // namespace invar
