#pragma once
// HubLock: keeps removal and download of one repository apart, across processes, by files in the cache's
// .locks folder as the tools around the hub have them. Released when it goes. Any thread.

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cli/hub/hub_cache.h"
#include "cli/hub/hub_name.h"

namespace invar {

class HubLock {
 public:
  // Several may download at once. Waits while the repository is being removed.
  static Result<HubLock> for_download(const HubCache& cache, const HubName& name);
  // kUnavailable at once where somebody downloads, another tool included.
  static Result<HubLock> for_removal(const HubCache& cache, const HubName& name);
  HubLock(HubLock&& o) noexcept : fds_(std::exchange(o.fds_, {})) {}
  HubLock& operator=(HubLock&&) = delete;
  ~HubLock();

 private:
  HubLock() = default;
  std::vector<int> fds_;
};

}  // namespace invar
