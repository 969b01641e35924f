#pragma once
// pull(): brings what a name means from the hub into the cache that other tools share. Errors name
// repository, file and remedy. One thread.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/hub/hub_cache.h"
#include "cli/hub/hub_download.h"
#include "cli/hub/hub_name.h"

namespace invar {

struct PullOptions {
  HubOptions hub;
  int64_t segment_bytes = kHubSegmentBytes;
  std::string sha256;  // that the model's file must have, whatever the hub says; "" = any
};

struct PulledFile {
  HubFile file;
  bool fetched = false;  // else it was there
};
struct Pulled {
  std::string commit;
  std::string path;  // to load
  std::vector<PulledFile> files;
};

Result<Pulled> pull(const HubCache& cache, const HubName& name, const PullOptions& options);

}  // namespace invar
