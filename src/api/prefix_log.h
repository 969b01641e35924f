#pragma once
// PrefixLog: how the latest prompts were found in the prefix cache, for GET /debug/prefix. One per server,
// shared by its threads; exchanges write, handlers read.

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "engine/stream.h"

namespace invar::api {

class PrefixLog {
 public:
  static constexpr size_t kEntries = 256;

  struct Entry {
    std::string request;  // x-request-id
    uint64_t tenant = 0;
    int32_t prompt_tokens = 0;
    PromptReuse reuse;
    int32_t token = -1;  // of the prompt, at the end of what was found; -1 = the prompt ends there
  };

  void add(Entry entry);
  // Those of one tenant, the latest first.
  std::vector<Entry> of_tenant(uint64_t tenant) const;

 private:
  mutable std::mutex mutex_;
  std::vector<Entry> ring_;
  size_t next_ = 0;  // that is overwritten
};

}  // namespace invar::api
