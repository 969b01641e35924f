#include "cli/hub/hub_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>

#include "base/quote.h"
#include "cli/flags.h"

namespace invar {
namespace {

constexpr size_t kMaxPartBytes = 96;
constexpr size_t kShownChoices = 12;
constexpr std::string_view kDefaultQuant = "Q4_K_M";
constexpr std::string_view kGguf = ".gguf";

bool is_part(std::string_view s) {
  const auto borders = [](char c) { return c == '.' || c == '-'; };
  return !s.empty() && s.size() <= kMaxPartBytes && !borders(s[0]) && !borders(s.back()) &&
         s.find("..") == std::string_view::npos && std::all_of(s.begin(), s.end(), [](unsigned char c) {
           return std::isalnum(c) || c == '-' || c == '_' || c == '.';
         });
}

bool is_revision(std::string_view s) {
  return is_safe_repo_path(s) && s.size() <= 200 && std::all_of(s.begin(), s.end(), [](unsigned char c) {
           return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '/';
         });
}

std::string lower(std::string_view s) {
  std::string out(s);
  for (char& c : out)
    c = char(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 = 0
}

// "model-00002-of-00003.gguf" is {"model", 2, 3}; whole: a name without such numbers.
struct Shard {
  std::string stem;
  int index = 1, count = 1;
  bool whole = true;
};
Shard shard_of(std::string_view path) {
  std::string_view stem = path.substr(0, path.size() - kGguf.size());
  constexpr std::string_view kTail = "-00001-of-00001";
  if (stem.size() > kTail.size()) {
    const std::string_view tail = stem.substr(stem.size() - kTail.size());
    int index = 0, count = 0;
    const auto number = [](std::string_view digits, int* out) {
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), *out);
      return error == std::errc() && end == digits.data() + digits.size();
    };
    if (tail[0] == '-' && tail.substr(6, 4) == "-of-" && number(tail.substr(1, 5), &index) &&
        number(tail.substr(10), &count) && index >= 1 && index <= count)
      return {std::string(stem.substr(0, stem.size() - kTail.size())), index, count, false};
  }
  return {std::string(stem)};
}

// The word stands in the name between characters that are no letters or digits.
bool has_word(std::string_view name, std::string_view word) {
  const std::string n = lower(name), w = lower(word);
  const auto ends = [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); };
  for (size_t at = n.find(w); at != std::string::npos; at = n.find(w, at + 1)) {
    const size_t end = at + w.size();
    // Q4_K is no part of Q4_K_M.
    if ((at == 0 || ends(n[at - 1])) && (end == n.size() || (ends(n[end]) && n[end] != '_'))) return true;
  }
  return false;
}

struct GgufModel {
  std::string stem;
  int count = 1;
  std::vector<std::string> files;  // by index
};

std::vector<GgufModel> gguf_models(const std::vector<std::string>& paths) {
  // A whole file is a model of its own, whatever shards are named like it.
  std::map<std::string, std::pair<GgufModel, std::map<int, std::string>>> by_name;
  for (const std::string& path : paths) {
    if (!lower(path).ends_with(kGguf)) continue;
    if (lower(base_name(path)).starts_with("mmproj")) continue;  // an image encoder, no model
    const Shard shard = shard_of(path);
    const std::string_view suffix = std::string_view(path).substr(path.size() - kGguf.size());
    auto& [model, files] =
        by_name[shard.whole ? path : fmt::format("{}-of-{}{}", shard.stem, shard.count, suffix)];
    model.stem = shard.stem, model.count = shard.count;
    files[shard.index] = path;
  }
  std::vector<GgufModel> models;
  for (auto& [name, model] : by_name) {
    for (auto& [index, path] : model.second)
      model.first.files.push_back(std::move(path));
    models.push_back(std::move(model.first));
  }
  return models;
}

std::string choices(const std::vector<GgufModel>& models) {
  std::string out;
  for (size_t i = 0; i < std::min(models.size(), kShownChoices); ++i)
    out += (i ? ", " : "") + models[i].files[0];
  if (models.size() > kShownChoices) out += fmt::format(" and {} more", models.size() - kShownChoices);
  return out;
}

Result<HubSelection> selection_of(const HubName& name, GgufModel model) {
  if (int(model.files.size()) != model.count)
    return not_found(fmt::format("{}: {} of the {} shards of {} are there", name.text(), model.files.size(),
                                 model.count, model.stem));
  HubSelection s;
  s.model = model.files[0];
  s.files = std::move(model.files);
  return s;
}

// Weights in Hugging Face layout and what goes with them; from the top folder only, where loaders look.
std::optional<HubSelection> safetensors_of(const std::vector<std::string>& paths) {
  HubSelection s;
  bool weights = false, config = false;
  for (const std::string& path : paths) {
    if (path.find('/') != std::string::npos) continue;
    const bool is_weights = path.starts_with("model") && path.ends_with(".safetensors");
    weights |= is_weights;
    config |= path == "config.json";
    const bool is_side = path.ends_with(".json") || path.ends_with(".jinja") || path.ends_with(".model") ||
                         path.ends_with(".tiktoken") || path == "merges.txt" || path == "vocab.txt";
    if (is_weights || is_side) s.files.push_back(path);
  }
  if (!weights || !config) return std::nullopt;
  return s;
}

}  // namespace

std::string flaw_of(const HubName& n) {
  if (!is_part(n.owner) || !is_part(n.name)) return "no name of a repository";
  // The cache's folders join the two with "--": a--b/c would share one with a/b--c. Hubs have no such names.
  if (n.repo().find("--") != std::string::npos) return "no repository has two hyphens in a row in its name";
  if (!is_revision(n.revision)) return "the revision after @ is no branch, tag or commit";
  if (!n.selector.empty() && !is_safe_repo_path(n.selector))
    return "after the colon goes a file of the repository or a quantization";
  return "";
}

std::string HubName::text() const {
  return repo() + (selector.empty() ? "" : ":" + selector) + (revision == "main" ? "" : "@" + revision);
}

bool is_commit_id(std::string_view text) {
  return text.size() == 40 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

bool is_safe_repo_path(std::string_view path) {
  if (path.empty() || path.size() > 1000 || path[0] == '/') return false;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    if (part.empty() || part == "." || part == ".." || part.size() > 255) return false;
    at = end + 1;
  }
  return std::none_of(path.begin(), path.end(),
                      [](unsigned char c) { return c < 0x20 || c == 0x7F || c == '\\'; });
}

bool looks_like_hub_name(std::string_view text) {
  const std::string_view repo = text.substr(0, text.find_first_of(":@"));
  const size_t slash = repo.find('/');
  return slash != std::string_view::npos && is_part(repo.substr(0, slash)) && is_part(repo.substr(slash + 1));
}

Result<HubName> parse_hub_name(const std::string& text) {
  const auto wrong = [&](std::string_view what) {
    return invalid_argument(
        fmt::format("{}: {}; write owner/name, owner/name:Q4_K_M or owner/name:file.gguf@revision",
                    shown_value(text), what));
  };
  HubName n;
  std::string rest = text;
  if (const size_t at = rest.rfind('@'); at != std::string::npos) {
    n.revision = rest.substr(at + 1);
    rest.resize(at);
  }
  if (const size_t colon = rest.find(':'); colon != std::string::npos) {
    n.selector = rest.substr(colon + 1);
    if (n.selector.empty()) return wrong("after the colon goes a file of the repository or a quantization");
    rest.resize(colon);
  }
  const size_t slash = rest.find('/');
  if (slash == std::string::npos) return wrong("no name of a repository");
  n.owner = rest.substr(0, slash);
  n.name = rest.substr(slash + 1);
  // Of what was cut and not of the text: where it is cut decides what becomes a path.
  if (const std::string flaw = flaw_of(n); !flaw.empty()) return wrong(flaw);
  return n;
}

Result<HubSelection> select_hub_files(const HubName& name, const std::vector<std::string>& paths) {
  const std::vector<GgufModel> all = gguf_models(paths);
  if (!name.selector.empty()) {
    const auto exact = std::find(paths.begin(), paths.end(), name.selector);
    if (exact != paths.end() && !lower(*exact).ends_with(kGguf)) return HubSelection{{*exact}, *exact};
    std::vector<GgufModel> found;
    for (const GgufModel& m : all) {
      if (std::find(m.files.begin(), m.files.end(), name.selector) != m.files.end())
        return selection_of(name, m);
      if (has_word(base_name(m.stem), name.selector)) found.push_back(m);
    }
    if (found.size() == 1) return selection_of(name, found[0]);
    if (found.size() > 1)
      return invalid_argument(fmt::format("{}: several files are {}; name one: {}", name.text(),
                                          shown_value(name.selector), printable(choices(found), 500)));
    return not_found(all.empty() ? fmt::format("{}: has no file {}", name.text(), shown_value(name.selector))
                                 : fmt::format("{}: has no {}; it has {}", name.text(),
                                               shown_value(name.selector), printable(choices(all), 500)));
  }
  if (all.size() == 1) return selection_of(name, all[0]);
  if (all.size() > 1) {
    std::vector<GgufModel> found;
    for (const GgufModel& m : all)
      if (has_word(base_name(m.stem), kDefaultQuant)) found.push_back(m);
    if (found.size() == 1) return selection_of(name, found[0]);
    return invalid_argument(
        fmt::format("{0}: has several models; name a file or a quantization after a colon, "
                    "{0}:FILE; there are {1}",
                    name.repo(), printable(choices(all), 500)));
  }
  if (auto folder = safetensors_of(paths)) return *folder;
  return not_found(
      fmt::format("{}: has neither GGUF files nor config.json with model*.safetensors", name.text()));
}

}  // namespace invar
