#include "engine/runner.h"

#include <fmt/format.h>

#include <exception>
#include <new>

namespace invar {

Result<StepOutputs> Runner::forward(const Batch& batch) {
  try {
    return executable_->run(batch.inputs());
  } catch (const std::bad_alloc&) {
    return resource_exhausted("out of memory inside a step; lower --memory");
  } catch (const std::exception& error) {
    return internal_error(fmt::format("the backend failed inside a step: {}", error.what()));
  }
}

}  // namespace invar
