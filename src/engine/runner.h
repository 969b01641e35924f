#pragma once
// Runner: the compiled graph of one model and its scratch. Owned by the engine, used on its thread: one
// forward pass per step. What the backend throws passes through; the engine turns it into an error of that
// batch.

#include <cstdint>
#include <memory>
#include <utility>

#include "backends/backend.h"
#include "base/clock.h"
#include "engine/batch.h"

namespace invar {

class Runner {
 public:
  explicit Runner(std::unique_ptr<Executable> executable) : executable_(std::move(executable)) {}

  // Runs the graph once for all rows. The outputs live until the next call.
  StepOutputs forward(const Batch& batch) {
    const int64_t before = now_ns();
    const StepOutputs outputs = executable_->run(batch.inputs());
    forward_ns_ = now_ns() - before;
    return outputs;
  }
  int64_t forward_ns() const { return forward_ns_; }  // of the last pass that ended
  size_t scratch_bytes() const { return executable_->scratch_bytes(); }

 private:
  std::unique_ptr<Executable> executable_;
  int64_t forward_ns_ = 0;
};

}  // namespace invar
