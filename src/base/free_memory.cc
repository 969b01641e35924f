#include "base/free_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string_view>

#include "base/cgroup.h"

namespace invar {
namespace {

std::optional<uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;  // no such file, or "max"
}

// The value of a line "name value".
uint64_t field_in(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  uint64_t value = 0;
  for (std::string key; file >> key >> value;)
    if (key == name) return value;
  return 0;
}

// What the group's limit leaves; nullopt where there is none.
std::optional<uint64_t> room_in(const CgroupLevel& group) {
  const std::string& directory = group.directory;
  const auto limit = number_in(directory + (group.v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  if (!limit) return std::nullopt;
  const uint64_t used =
      number_in(directory + (group.v2 ? "/memory.current" : "/memory.usage_in_bytes")).value_or(0);
  const uint64_t cache =
      field_in(directory + "/memory.stat", group.v2 ? "inactive_file" : "total_inactive_file");
  return *limit - std::min(*limit, used - std::min(used, cache));
}

// What `ulimit -v` leaves.
uint64_t free_address_space(const std::string& root) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  const uint64_t pages = number_in(root + "/proc/self/statm").value_or(0);
  return limit.rlim_cur - std::min<uint64_t>(limit.rlim_cur, pages * uint64_t(::sysconf(_SC_PAGESIZE)));
}

}  // namespace

uint64_t free_memory_bytes(const std::string& root) {
  uint64_t available = 0;
  std::ifstream meminfo(root + "/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);)
    if (line.rfind("MemAvailable:", 0) == 0) available = std::strtoull(line.c_str() + 13, nullptr, 10) * 1024;
  for (const CgroupLevel& group : cgroup_levels("memory", root))
    available = std::min(available, room_in(group).value_or(available));
  return std::min(available, free_address_space(root));
}

}  // namespace invar
