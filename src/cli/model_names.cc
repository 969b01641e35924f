#include "cli/model_names.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "base/text_distance.h"
#include "cli/environment.h"
#include "cli/flags.h"

namespace invar {
namespace {

constexpr ModelAlias kAliases[] = {
#include "cli/model_aliases.inc"
};

}  // namespace

std::span<const ModelAlias> model_aliases() {
  return kAliases;
}

const ModelAlias* find_alias(std::string_view name) {
  for (const ModelAlias& alias : kAliases)
    if (name == alias.name) return &alias;
  return nullptr;
}

std::string alias_names() {
  std::string names;
  for (const ModelAlias& alias : kAliases)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", alias.name);
  return names;
}

Status check_model_name(const std::string& text) {
  if (find_alias(text) != nullptr) return {};
  if (text.find('/') == std::string::npos)
    return invalid_argument(
        fmt::format("{}: no short name ({}) and no owner/name of a repository, such as owner/name:Q4_K_M; "
                    "invar ls shows what is here",
                    shown_value(text), alias_names()));
  return parse_hub_name(text).status();
}

std::string alias_path(const ModelAlias& alias) {
  const std::string& cache = environment().cache_dir;
  return cache.empty() ? "" : cache + "/models/" + alias.file;
}

Result<std::string> find_model(const std::string& text, const HubCache& cache) {
  std::error_code ec;
  if (std::filesystem::exists(text, ec)) return text;
  if (std::filesystem::is_symlink(std::filesystem::symlink_status(text, ec))) {
    const std::string to = std::filesystem::read_symlink(text, ec).string();
    return not_found(fmt::format(
        "{}: is a link to {}, which leads to no file or folder; mend the link, or name another one",
        shown_value(text), shown_value(to)));
  }
  if (const ModelAlias* alias = find_alias(text)) {
    std::string path = alias_path(*alias);
    if (!path.empty() && ::access(path.c_str(), R_OK) == 0) return path;
    ASSIGN_OR_RETURN(const HubName name, parse_hub_name(alias->hub));
    if (auto found = cache.find(name); found.ok()) return found;
    return not_found(fmt::format("{0} is not on this machine yet; fetch it with: invar pull {0}{1}", text,
                                 path.empty() ? "" : fmt::format(" (or place {} at {})", alias->file, path)));
  }
  if (looks_like_hub_name(text)) {
    auto name = parse_hub_name(text);
    auto found = name.ok() ? cache.find(*name) : Result<std::string>(name.status());
    if (found.ok()) return found;
    return found.status().with_context("there is no such file or folder; as a name of a repository");
  }
  if (text.find('/') == std::string::npos) {
    std::vector<std::string> names;
    for (const ModelAlias& alias : kAliases)
      names.emplace_back(alias.name);
    const std::string near = nearest_text(text, names);
    return not_found(fmt::format(
        "{}: there is no such file, folder or short name; {}", shown_value(text),
        near.empty() ? fmt::format("short names are {}, and invar ls shows what is here", alias_names())
                     : fmt::format("did you mean {}?", near)));
  }
  return text;
}

}  // namespace invar
