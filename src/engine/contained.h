#pragma once
// contained: where the engine meets the exceptions of others: of the backend, of the sampler, of observers
// and of guards.

#include <fmt/format.h>

#include <exception>
#include <new>

#include "base/status.h"

namespace invar {

// Runs f; what it throws becomes a status. `what` names f in the message.
template <class F>
Status contained(const char* what, F f) {
  try {
    f();
    return {};
  } catch (const std::bad_alloc&) {
    return resource_exhausted(fmt::format("out of memory in {}; lower --memory or --max-batch", what));
  } catch (const std::exception& error) {
    return internal_error(fmt::format("{} failed: {}", what, error.what()));
  } catch (...) {
    return internal_error(fmt::format("{} failed with an unknown exception", what));
  }
}

}  // namespace invar
