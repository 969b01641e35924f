#include "format/memory_size.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/cgroup.h"

namespace invar {

uint64_t memory_size(const std::string& root) {
  uint64_t size = static_cast<uint64_t>(std::max(::sysconf(_SC_PHYS_PAGES), 0L)) *
                  static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  for (const CgroupLevel& group : cgroup_levels("memory", root)) {
    std::ifstream file(group.directory + (group.v2 ? "/memory.max" : "/memory.limit_in_bytes"));
    uint64_t limit = 0;
    if (file >> limit) size = std::min(size, limit);  // else there is no such file, or "max"
  }
  return size;
}

}  // namespace invar
