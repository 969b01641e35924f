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
  std::string hf_home = variable("HF_HOME");
  if (hf_home.empty() && !e.cache_dir.empty())
    hf_home = e.cache_dir.substr(0, e.cache_dir.rfind('/')) + "/huggingface";
  e.hub_cache = variable("HF_HUB_CACHE");
  if (e.hub_cache.empty() && !hf_home.empty()) e.hub_cache = hf_home + "/hub";
  e.hub_endpoint = variable("HF_ENDPOINT");
  if (e.hub_endpoint.empty()) e.hub_endpoint = "https://huggingface.co";
  e.hub_token = variable("HF_TOKEN");
  e.hub_token_file = variable("HF_TOKEN_PATH");
  if (e.hub_token_file.empty() && !hf_home.empty()) e.hub_token_file = hf_home + "/token";
  const std::string offline = variable("HF_HUB_OFFLINE");
  e.hub_offline = !offline.empty() && offline != "0" && offline != "false" && offline != "False";
  return e;
}

}  // namespace

const Environment& environment() {
  static const Environment e = read_environment();
  return e;
}

}  // namespace invar
