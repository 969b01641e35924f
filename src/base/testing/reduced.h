#pragma once
// For tests: a shorter list of cases for builds that run many times slower (sanitizers) or repeat what the
// release build has covered (the second compiler). INVAR_TEST_REDUCED set, not empty and not 0 asks for it.

#include <cstdlib>
#include <string_view>

namespace invar {

inline bool reduced_tests() {
  const char* value = std::getenv("INVAR_TEST_REDUCED");
  return value != nullptr && *value != 0 && std::string_view(value) != "0";
}

}  // namespace invar
