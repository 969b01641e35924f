#pragma once
// How much memory this process can have at most. Any thread.

#include <cstdint>
#include <string>

namespace invar {

// Bytes of the machine, or of the smallest limit of a control group around the process. `root` stands before
// the paths of the groups.
uint64_t memory_size(const std::string& root = "");

}  // namespace invar
