#pragma once
// What is added to the message of an error on its way up: where it happened and what helps, each once.

#include <string>

#include "base/status.h"

namespace invar {

// With "path: " in front, unless the message begins so already.
inline Status located(const Status& error, const std::string& path) {
  return error.message().starts_with(path) ? error : error.with_context(path);
}

// With "; remedy" behind, unless the message has a remedy. Only of what another file or another path mends.
inline Status with_remedy(const Status& error, const std::string& remedy) {
  const bool mendable = error.code() == Code::kCorrupt || error.code() == Code::kNotFound ||
                        error.code() == Code::kInvalidArgument;
  if (!mendable || error.message().find("; ") != std::string::npos) return error;
  return {error.code(), error.message() + "; " + remedy};
}

}  // namespace invar
