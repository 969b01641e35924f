#pragma once
// How many cores this process may keep busy: the scheduler affinity of the calling thread, cut by the cgroup
// cpu quota (v2 or v1). Read once at start; errors count as "no limit".

#include <string>
#include <vector>

namespace invar {

struct UsableCores {
  std::vector<int> affinity;      // core numbers this thread may run on, ascending, never empty
  int count = 1;                  // what a pool should use: at least 1, at most affinity.size()
  bool limited_by_quota = false;  // count < affinity.size(): the kernel may throttle, so pinning would hurt
};

// `root` stands before every path that is read ("/proc/self/cgroup", ...); tests pass a directory.
UsableCores usable_cores(const std::string& root = "");

}  // namespace invar
