#include "base/usable_cores.h"

#include <sched.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <string_view>
#include <unordered_set>

#include "base/cgroup.h"
#include "base/quote.h"

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

// Siblings share a file's text; a core that says nothing stands for itself.
std::string siblings_of(int core, const std::string& root) {
  std::ifstream file(
      fmt::format("{}/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", root, core));
  std::string text;
  return std::getline(file, text) && !text.empty() ? text : std::to_string(core);
}

// The first hardware thread of each physical core to the front.
int order_by_core(std::vector<int>& cores, const std::string& root) {
  std::unordered_set<std::string> seen;
  const auto rest = std::stable_partition(
      cores.begin(), cores.end(), [&](int core) { return seen.insert(siblings_of(core, root)).second; });
  return int(rest - cores.begin());
}

Result<std::vector<int>> parse_cores(std::string_view list) {
  constexpr int kMost = 1 << 16;
  std::vector<int> cores;
  const auto wrong = [&] {
    return invalid_argument(fmt::format("{}: is no list of CPU numbers such as 0-3,8", quote(list)));
  };
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const char *p = list.data() + at, *const last = list.data() + end;
    int from = 0, to = 0;
    auto read = std::from_chars(p, last, from);
    if (read.ec != std::errc()) return wrong();
    to = from;
    if (read.ptr != last) {
      if (*read.ptr != '-') return wrong();
      read = std::from_chars(read.ptr + 1, last, to);
    }
    if (read.ec != std::errc() || read.ptr != last || from < 0 || to < from || to >= kMost) return wrong();
    for (int core = from; core <= to; ++core)
      cores.push_back(core);
    at = end + 1;
  }
  return cores;
}

}  // namespace

Status bind_to_cores(const std::string& list) {
  ASSIGN_OR_RETURN(const std::vector<int> cores, parse_cores(list));
  const std::vector<int> usable = usable_cores().affinity;
  int most = 0;
  for (const int core : cores) {
    most = std::max(most, core);
    if (std::find(usable.begin(), usable.end(), core) == usable.end())
      return invalid_argument(
          fmt::format("CPU {} is none of the {} that this process may use", core, usable.size()));
  }
  cpu_set_t* set = CPU_ALLOC(most + 1);
  if (set == nullptr) return resource_exhausted("no memory for a list of CPUs");
  const size_t bytes = CPU_ALLOC_SIZE(most + 1);
  CPU_ZERO_S(bytes, set);
  for (const int core : cores)
    CPU_SET_S(core, bytes, set);
  const int failed = sched_setaffinity(0, bytes, set) == 0 ? 0 : errno;
  CPU_FREE(set);
  return failed == 0 ? Status() : io_error(fmt::format("the system refuses: {}", std::strerror(failed)));
}

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
  result.physical = order_by_core(result.affinity, root);
  const double quota = cgroup_quota(root), cores = double(result.physical);
  // A fraction of a core is not worth a thread: it would be throttled in the middle of a phase.
  result.count = std::max(1, int(std::min(quota, cores)));
  result.limited_by_quota = quota < cores;
  return result;
}

}  // namespace invar
