#pragma once
// HubName: "owner/name[:file or quant][@revision]", the name of a model in a hub's repository, and which of a
// repository's files it means. Pure functions.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace invar {

struct HubName {
  std::string owner, name;
  std::string selector;           // path of a file, or a quantization such as "Q4_K_M"; "" = none given
  std::string revision = "main";  // branch, tag or commit
  std::string repo() const { return owner + "/" + name; }
  std::string text() const;  // as it is written
};

// Whether the text has the form of a name, so that it may be one; parse_hub_name() says what is wrong with
// it.
bool looks_like_hub_name(std::string_view text);
Result<HubName> parse_hub_name(const std::string& text);
// Why the parts may not become paths and addresses; "" where they may. What parse_hub_name() gives has
// passed.
std::string flaw_of(const HubName& name);

// A full commit id: 40 hexadecimal digits.
bool is_commit_id(std::string_view text);
// A path inside a repository that may be made on this machine: relative, no "..", no control characters.
bool is_safe_repo_path(std::string_view path);

// What a name means among the paths of its repository: the GGUF file, with all shards of a split one, or the
// safetensors with their configuration and tokenizer.
struct HubSelection {
  std::vector<std::string> files;  // at least one; first shards first
  std::string model;               // the file to load; "" = the folder itself
};
// Errors list what there is to choose from.
Result<HubSelection> select_hub_files(const HubName& name, const std::vector<std::string>& paths);

}  // namespace invar
