#pragma once
// The control groups that this process lives in, for whoever reads their limits: a limit of any group on the
// way to the root binds.

#include <string>
#include <vector>

namespace invar {

struct CgroupLevel {
  std::string directory;  // where the group's files are
  bool v2 = false;        // unified hierarchy; else that of the controller alone
};

// From each hierarchy's root down to the process's own group, for a controller such as "cpu". Directories
// need not exist: inside a container only the root may be visible. `root` stands before every path; tests
// pass a directory.
std::vector<CgroupLevel> cgroup_levels(const std::string& controller, const std::string& root = "");

}  // namespace invar
