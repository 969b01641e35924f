#pragma once
// HubCache: downloaded repositories in the layout that the tools around the Hugging Face hub share:
//   models--OWNER--NAME/blobs/ETAG           contents, by SHA-256 (large files) or git's object id (others)
//   models--OWNER--NAME/snapshots/COMMIT/    the tree of a commit as links into blobs/
//   models--OWNER--NAME/refs/REVISION        the commit that a branch or tag was
// Only reads and removes here; hub_pull.h adds. Errors name the path. Any thread.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/hub/hub_name.h"

namespace invar {

class HubCache {
 public:
  explicit HubCache(std::string root) : root_(std::move(root)) {}  // ".../hub"; "" = there is none

  const std::string& root() const { return root_; }
  std::string repo_folder(const HubName& name) const;

  struct Snapshot {
    std::string commit;
    std::vector<std::string> revisions;  // names that point here
    std::vector<std::string> files;      // paths whose contents are there, in order
    uint64_t bytes = 0;                  // of them
  };
  struct Repo {
    HubName name;
    std::vector<Snapshot> snapshots;
    uint64_t bytes = 0;  // of all blobs, unfinished ones too
  };
  // Every repository, by name. No folder: none.
  std::vector<Repo> repos() const;
  Result<Repo> repo(const HubName& name) const;

  // The path to load: a file, or the folder of a snapshot. kNotFound says how to get it.
  Result<std::string> find(const HubName& name) const;

  struct Removal {
    std::vector<std::string> paths;  // in the order of removal
    uint64_t bytes = 0;              // that this frees
  };
  // What to remove so that `name` is gone: the whole repository, or with a revision or selector in the name
  // what nothing else needs. Nothing is touched yet.
  Result<Removal> plan_removal(const HubName& name, bool whole_repo) const;
  static Status remove(const Removal& removal);

 private:
  std::string root_;
};

}  // namespace invar
