#pragma once
// How much memory there is to take, as /proc and the cgroups of the process say. Any thread.

#include <cstdint>
#include <string>

namespace invar {

// Bytes that can be had without swapping, bounded by the limits of the process's cgroups; cache of files that
// nothing has touched lately counts as free. `root` stands before every path.
uint64_t free_memory_bytes(const std::string& root = "");

}  // namespace invar
