#include "base/cgroup.h"

#include <algorithm>
#include <fstream>

namespace invar {

std::vector<CgroupLevel> cgroup_levels(const std::string& controller, const std::string& root) {
  std::vector<CgroupLevel> levels;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "hierarchy:controllers:/path"
    const size_t first = line.find(':'),
                 second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1),
                      group = line.substr(second + 1);
    const bool v2 = controllers.empty();
    if (!v2 && ("," + controllers + ",").find("," + controller + ",") == std::string::npos) continue;
    const std::string mount = root + "/sys/fs/cgroup" + (v2 ? "" : "/" + controller);
    levels.push_back({mount, v2});
    for (size_t end = 0; end < group.size() && group != "/";) {
      end = std::min(group.find('/', end + 1), group.size());
      levels.push_back({mount + group.substr(0, end), v2});
    }
  }
  return levels;
}

}  // namespace invar
