#pragma once
// Memory planner: places buffers whose times of use are known into one block, so that space of dead buffers
// is used again. Times are indices of whatever runs in order (nodes, or the phases of a backend); buffers
// used at the same time never overlap. Runs once, at load.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace invar {

struct BufferUse {
  size_t bytes;        // at the largest step: [T, width] buffers of max_tokens rows
  int32_t first_time;  // first access
  int32_t last_time;   // last access, included
};

struct MemoryPlan {
  std::vector<size_t> offsets;  // [buffers], multiples of 64
  size_t bytes = 0;
};

MemoryPlan plan_memory(std::span<const BufferUse> uses);

}  // namespace invar
