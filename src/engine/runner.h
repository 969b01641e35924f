#pragma once
// Runner: runs the compiled graph on a batch. The only place where the engine meets a backend's exceptions.

#include <memory>

#include "backends/backend.h"
#include "base/status.h"
#include "engine/batch.h"

namespace invar {

class Runner {
 public:
  explicit Runner(std::unique_ptr<Executable> executable) : executable_(std::move(executable)) {}

  // The outputs live until the next call. On an error nothing of the batch counts as written.
  Result<StepOutputs> forward(const Batch& batch);
  size_t scratch_bytes() const { return executable_->scratch_bytes(); }

 private:
  std::unique_ptr<Executable> executable_;
};

}  // namespace invar
