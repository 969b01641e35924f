#pragma once
// ServerFlags: where the server listens, who may use it and what it bounds, from the command line. Main
// thread.

#include <string>
#include <vector>

#include "cli/flags.h"
#include "server/options.h"

namespace invar {

// The keys that a value of --api-key means: itself, or the lines of a file (what exists as one or has a
// slash). At least one.
Result<std::vector<std::string>> api_keys_of(const std::string& value);

class ServerFlags {
 public:
  void declare(Flags& flags);

  // After parsing: reads key files; errors name the flag.
  Result<server::ServerOptions> finish() const;

 private:
  server::ServerOptions options_;
  std::vector<std::string> keys_;
  uint64_t max_body_ = 0, max_pending_ = 0;
  int32_t idle_s_ = 75, request_s_ = 0, ping_s_ = 15;
  bool quiet_ = false;
};

}  // namespace invar
