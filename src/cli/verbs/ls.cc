// invar ls and invar rm: the models that are on this machine under a name.

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <optional>

#include "base/quote.h"
#include "base/size_text.h"
#include "cli/environment.h"
#include "cli/flags.h"
#include "cli/hub/hub_cache.h"
#include "cli/hub/hub_lock.h"
#include "cli/model_names.h"
#include "cli/verbs.h"
#include "format/packed_source.h"
#include "format/packed_weights.h"

namespace invar {
namespace fs = std::filesystem;
namespace {

constexpr size_t kShownBytes = 200;
constexpr size_t kCommitDigits = 12;

// A line: what --model takes, and where it comes from.
struct Entry {
  std::string model, revision, path;
  uint64_t bytes = 0;

  std::string packed() const { return packed_path(path, environment().cache_dir + "/packed"); }
  // Of the copy that serves; 0: there is none.
  uint64_t packed_bytes() const {
    std::error_code ec;
    const uint64_t n = fs::file_size(packed(), ec);
    return ec ? 0 : n;
  }
  // What a packed model was made from; "": it is none, or cannot be read.
  std::string packed_of() const {
    if (!path.ends_with(kPackedSuffix)) return "";
    const auto source = ModelSource::open(path);
    return source.ok() && (*source)->packed() != nullptr ? (*source)->packed()->name : "";
  }
  std::string packed_text() const {
    if (const std::string of = packed_of(); !of.empty()) return "of " + printable_within(of, kShownBytes);
    return packed_bytes() == 0 ? "-" : size_text(packed_bytes());
  }
};

std::string revision_text(const HubCache::Snapshot& s) {
  const std::string commit = s.commit.substr(0, kCommitDigits);
  return s.revisions.empty() ? commit : fmt::format("{} ({})", fmt::join(s.revisions, ", "), commit);
}

// The name that means this snapshot: its own branch where that is main, else by tag or commit.
std::string pinned(const HubName& name, const HubCache::Snapshot& s, const std::string& file) {
  HubName n = name;
  n.selector = file;
  if (std::find(s.revisions.begin(), s.revisions.end(), "main") == s.revisions.end())
    n.revision = s.revisions.empty() ? s.commit : s.revisions[0];
  return n.text();
}

std::vector<Entry> entries(const HubCache& cache) {
  std::vector<Entry> out;
  for (const ModelAlias& alias : model_aliases()) {
    const std::string path = alias_path(alias);
    std::error_code ec;
    const uint64_t bytes = path.empty() ? 0 : fs::file_size(path, ec);
    if (!path.empty() && !ec) out.push_back({alias.name, "-", path, bytes});
  }
  for (const HubCache::Repo& repo : cache.repos()) {
    for (const HubCache::Snapshot& s : repo.snapshots) {
      const fs::path folder = fs::path(cache.repo_folder(repo.name)) / "snapshots" / s.commit;
      bool listed = false;
      for (const std::string& file : s.files) {
        // Of a split file its first part stands for all.
        if (!file.ends_with(".gguf") && !file.ends_with(kPackedSuffix)) continue;
        HubName name = repo.name;
        name.selector = file;
        const auto selection = select_hub_files(name, s.files);
        if (selection.ok() && selection->files[0] != file) continue;
        Entry e{pinned(repo.name, s, file), revision_text(s), (folder / file).string()};
        std::error_code ec;
        for (const std::string& part : selection.ok() ? selection->files : std::vector{file})
          e.bytes += fs::file_size(folder / part, ec);
        out.push_back(std::move(e));
        listed = true;
      }
      const bool weights = std::any_of(s.files.begin(), s.files.end(),
                                       [](const std::string& f) { return f.ends_with(".safetensors"); });
      if (!listed && weights)
        out.push_back({pinned(repo.name, s, ""), revision_text(s), folder.string(), s.bytes});
    }
  }
  return out;
}

// The packed copies of the models that a removal takes.
HubCache::Removal packed_copies(const HubCache& cache, const HubCache::Removal& removal) {
  HubCache::Removal copies;
  for (const Entry& e : entries(cache)) {
    std::error_code ec;
    const std::string full = fs::weakly_canonical(e.path, ec).string();
    const bool goes = std::any_of(removal.paths.begin(), removal.paths.end(), [&](const std::string& path) {
      const auto inside = [&](const std::string& p) { return p == path || p.starts_with(path + "/"); };
      return inside(e.path) || inside(full);
    });
    if (!goes || e.packed_bytes() == 0) continue;
    copies.bytes += e.packed_bytes();
    copies.paths.push_back(e.packed());
  }
  return copies;
}

Result<HubCache::Removal> plan(const HubCache& cache, const std::string& text) {
  HubCache::Removal removal;
  if (const ModelAlias* alias = find_alias(text)) {
    const std::string path = alias_path(*alias);
    std::error_code ec;
    const uint64_t bytes = path.empty() ? 0 : fs::file_size(path, ec);
    if (!path.empty() && !ec) removal = {{path}, bytes};
    ASSIGN_OR_RETURN(const HubName name, parse_hub_name(alias->hub));
    if (auto more = cache.plan_removal(name, false); more.ok()) {
      removal.bytes += more->bytes;
      removal.paths.insert(removal.paths.end(), more->paths.begin(), more->paths.end());
    }
    if (removal.paths.empty())
      return not_found(fmt::format("{} is not on this machine; see: invar ls", text));
    return removal;
  }
  ASSIGN_OR_RETURN(const HubName name, parse_hub_name(text));
  return cache.plan_removal(name, name.selector.empty() && text.find('@') == std::string::npos);
}

// Nobody downloads the repository until the lock goes. Nothing where it is not in the cache.
Result<std::optional<HubLock>> lock_there(const HubCache& cache, const std::string& hub) {
  ASSIGN_OR_RETURN(const HubName name, parse_hub_name(hub));
  std::error_code ec;
  if (cache.root().empty() || !fs::is_directory(cache.repo_folder(name), ec)) return std::optional<HubLock>();
  ASSIGN_OR_RETURN(HubLock lock, HubLock::for_removal(cache, name));
  return std::optional<HubLock>(std::move(lock));
}

}  // namespace

int ls_verb(Arguments args) {
  bool json = false;
  Flags flags("ls", "list the models that are on this machine");
  flags.example("invar ls", "names for --model, with their sizes");
  flags.section("Output");
  flags.on("--json", &json, "one JSON array with paths");
  flags.note(
      "Lists what has a name: the models of the start script and the cache that tools of the hub share. "
      "PACKED is the copy that the first start wrote and that later ones map (invar rm takes it along), or "
      "what a packed model was made from.");
  if (const auto end = parse_or_end(flags, args)) return *end;
  const std::vector<Entry> list = entries(HubCache(environment().hub_cache));
  if (json) {
    boost::json::array out;
    for (const Entry& e : list)
      out.push_back({{"model", printable(e.model, 1000)},
                     {"revision", printable(e.revision, 1000)},
                     {"bytes", e.bytes},
                     {"packed_bytes", e.packed_bytes()},
                     {"packed_of", printable(e.packed_of(), 1000)},
                     {"path", printable(e.path, 2000)}});
    fmt::print("{}\n", json_for_terminal(boost::json::serialize(out)));
    return 0;
  }
  if (list.empty())
    fmt::print(stderr, "invar: no models here yet; for example: invar pull {}\n", model_aliases()[0].name);
  size_t width = 5, revision_width = 8;
  for (const Entry& e : list) {
    width = std::max(width, std::min(e.model.size(), kShownBytes));
    revision_width = std::max(revision_width, std::min(e.revision.size(), kShownBytes));
  }
  if (!list.empty())
    fmt::print("{:<{}}  {:<{}}  {:>10}  {:>10}\n", "MODEL", width, "REVISION", revision_width, "SIZE",
               "PACKED");
  for (const Entry& e : list)
    fmt::print("{:<{}}  {:<{}}  {:>10}  {:>10}\n", printable_within(e.model, kShownBytes), width,
               printable_within(e.revision, kShownBytes), revision_width, size_text(e.bytes),
               e.packed_text());
  return 0;
}

int rm_verb(Arguments args) {
  std::vector<std::string> names;
  bool dry_run = false;
  Flags flags("rm", "remove models from the cache");
  flags.example("invar rm owner/name", "everything of a repository");
  flags.example("invar rm owner/name:Q4_K_M", "one model; what others need stays");
  flags.rest("NAME...", &names, "as invar ls shows them");
  flags.on("--dry-run", &dry_run, "only print what would go");
  if (const auto end = parse_or_end(flags, args)) return *end;
  if (names.empty())
    return fail_usage(invalid_argument("which model? invar rm NAME; invar ls shows the names"));
  for (const std::string& name : names)
    if (const Status s = check_model_name(name); !s.ok()) return fail_usage(s);
  const HubCache cache(environment().hub_cache);
  for (const std::string& name : names) {
    const ModelAlias* alias = find_alias(name);
    const auto lock = dry_run ? Result<std::optional<HubLock>>(std::nullopt)
                              : lock_there(cache, alias != nullptr ? alias->hub : name);
    if (!lock.ok()) return fail(lock.status());
    auto removal = plan(cache, name);
    if (!removal.ok()) return fail(removal.status());
    HubCache::Removal copies = packed_copies(cache, *removal);
    removal->bytes += copies.bytes;
    removal->paths.insert(removal->paths.end(), copies.paths.begin(), copies.paths.end());
    if (dry_run) {
      for (const std::string& path : removal->paths)
        fmt::print("{}\n", printable(path, 2000));
    } else if (const Status s = HubCache::remove(*removal); !s.ok()) {
      return fail(s);
    }
    fmt::print(stderr, "invar: {}: {} {}\n", name, dry_run ? "would free" : "freed",
               size_text(removal->bytes));
  }
  return 0;
}

}  // namespace invar
