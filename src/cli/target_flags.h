#pragma once
// TargetFlags: what answers a verb that speaks the HTTP API: a running server (--server), or a model that the
// verb loads itself. Main thread.

#include <memory>
#include <string>

#include "cli/api_target.h"
#include "cli/engine_flags.h"
#include "cli/served_model.h"

namespace invar {

class TargetFlags {
 public:
  void declare(Flags& flags);
  // After parsing; errors name the flag. With --server, flags about a model are refused.
  Status finish(const Flags& flags);

  bool is_remote() const { return !server_.empty(); }
  Result<std::unique_ptr<ApiTarget>> open();

  // For the verb to change before open(); without effect on a running server.
  EngineFlags engine;
  ServedModelOptions model;

 private:
  std::string server_, api_key_;
};

}  // namespace invar
