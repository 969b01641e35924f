#include "base/usable_cores.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "base/cgroup.h"

namespace invar {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

double quota_of_v2(const std::string& directory) {
  std::ifstream file(directory + "/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return kNoLimit;
  const double value = std::atof(quota.c_str());
  return value > 0 ? value / period : kNoLimit;
}

double quota_of_v1(const std::string& directory) {
  std::ifstream quota_file(directory + "/cpu.cfs_quota_us"), period_file(directory + "/cpu.cfs_period_us");
  double quota = -1, period = 0;
  if (!(quota_file >> quota) || !(period_file >> period) || quota <= 0 || period <= 0) return kNoLimit;
  return quota / period;
}

double cgroup_quota(const std::string& root) {
  double least = kNoLimit;
  for (const CgroupLevel& level : cgroup_levels("cpu", root))
    least = std::min(least, level.v2 ? quota_of_v2(level.directory) : quota_of_v1(level.directory));
  return least;
}

}  // namespace

UsableCores usable_cores(const std::string& root) {
  UsableCores result;
  for (int size = 1024; size <= 1 << 16;
       size *= 4) {  // a machine may have more cores than cpu_set_t has bits
    cpu_set_t* set = CPU_ALLOC(size);
    if (set == nullptr) break;
    const bool ok = sched_getaffinity(0, CPU_ALLOC_SIZE(size), set) == 0;
    for (int core = 0; ok && core < size; ++core) {
      if (CPU_ISSET_S(core, CPU_ALLOC_SIZE(size), set)) result.affinity.push_back(core);
    }
    CPU_FREE(set);
    if (ok) break;
  }
  if (result.affinity.empty()) result.affinity.push_back(0);
  const double quota = cgroup_quota(root), cores = double(result.affinity.size());
  // A fraction of a core is not worth a thread: it would be throttled in the middle of a phase.
  result.count = std::max(1, int(std::min(quota, cores)));
  result.limited_by_quota = quota < cores;
  return result;
}

}  // namespace invar
