#pragma once
// One file of a repository on its way into blobs/: fetched in segments, several at a time, into an unfinished
// file beside it whose finished segments are written down, so that a later call goes on; checked by its hash
// before it gets its name. Unfinished files are our own (ETAG.invar-part): other tools' are whole up to a
// point. One thread; a lock that other tools honour keeps two processes apart.

#include <cstdint>
#include <string>

#include "base/status.h"
#include "cli/hub/hub_transfer.h"

namespace invar {

inline constexpr int64_t kHubSegmentBytes = 16 << 20;

struct HubFile {
  std::string path;  // in the repository
  int64_t bytes = 0;
  std::string sha256;  // of large files, else ""
  std::string git_id;  // SHA-1 of git's object; of every file
  const std::string& etag() const { return sha256.empty() ? git_id : sha256; }
};

struct HubDownload {
  std::string url_path;  // behind the endpoint
  std::string what;      // for messages and progress
  std::string blob;      // where it goes
  std::string lock;      // the file that is locked meanwhile
  HubFile file;
  int64_t segment_bytes = kHubSegmentBytes;
};

// Whether bytes had to be fetched. kCorrupt: the hash is another one; what came is removed.
Result<bool> download(HubTransfer& transfer, const HubDownload& download);

}  // namespace invar
