#include "cli/environment.h"

#include <cstdlib>

namespace invar {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Environment read_environment() {
  Environment e;
  e.isa = variable("INVAR_ISA");
  // The base directory rules of freedesktop.org: a relative path counts as unset.
  const std::string cache = variable("XDG_CACHE_HOME"), home = variable("HOME");
  if (!cache.empty() && cache[0] == '/')
    e.cache_dir = cache + "/invar";
  else if (!home.empty())
    e.cache_dir = home + "/.cache/invar";
  return e;
}

}  // namespace

const Environment& environment() {
  static const Environment e = read_environment();
  return e;
}

std::string default_model_path() {
  const std::string& cache = environment().cache_dir;
  return cache.empty() ? "" : cache + "/models/" + kDefaultModelName;
}

}  // namespace invar
