#pragma once
// How many cores this process may keep busy: the scheduler affinity of the calling thread, one hardware
// thread of each physical core, cut by the cgroup cpu quota (v2 or v1). Read once at start; errors count as
// "no limit".

#include <string>
#include <vector>

#include "base/status.h"

namespace invar {

struct UsableCores {
  // Numbers of the hardware threads this thread may run on, never empty: one of each physical core,
  // ascending, then their siblings.
  std::vector<int> affinity;
  int physical = 1;               // how many of them are the first of their core
  int count = 1;                  // what a pool should use: at least 1, at most `physical`
  bool limited_by_quota = false;  // count < physical: the kernel may throttle, so pinning would hurt
};

// `root` stands before every path that is read ("/proc/self/cgroup", ...); tests pass a directory.
UsableCores usable_cores(const std::string& root = "");

// Binds the calling thread, and those that it will start, to the hardware threads of a list such as "0-3,8".
// An error says which one there is not.
Status bind_to_cores(const std::string& list);

}  // namespace invar
