#include "cli/hub/hub_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/quote.h"

namespace invar {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "models--";

std::string read_ref(const fs::path& path) {
  std::ifstream in(path);
  std::string commit;
  in >> commit;
  return is_commit_id(commit) ? commit : "";
}

// Regular files and links to such below a folder, as sorted relative paths.
std::vector<std::string> files_below(const fs::path& folder) {
  std::vector<std::string> out;
  std::error_code ec;
  for (fs::recursive_directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    if (it->is_directory(ec) && !it->is_symlink(ec)) continue;
    if (fs::is_regular_file(it->path(), ec)) out.push_back(it->path().lexically_relative(folder).string());
    ec.clear();
  }
  std::sort(out.begin(), out.end());
  return out;
}

uint64_t size_of(const fs::path& path) {
  std::error_code ec;
  const uint64_t n = fs::file_size(path, ec);
  return ec ? 0 : n;
}

// revision -> commit.
std::map<std::string, std::string> refs_of(const fs::path& repo) {
  std::map<std::string, std::string> refs;
  for (const std::string& revision : files_below(repo / "refs"))
    if (std::string commit = read_ref(repo / "refs" / revision); !commit.empty()) refs[revision] = commit;
  return refs;
}

// The blob that a file of a snapshot is; "" for a file of its own.
std::string blob_of(const fs::path& file) {
  std::error_code ec;
  const fs::path target = fs::read_symlink(file, ec);
  return ec ? "" : target.filename().string();
}

// Whatever a name, a link or a file of the cache says: only what lies in the repository's own folder goes.
Status check_inside(const HubCache::Removal& removal, const fs::path& folder) {
  std::error_code ec;
  const fs::path own = fs::weakly_canonical(folder, ec);
  for (const std::string& path : removal.paths) {
    if (!ec && path == folder.string()) continue;
    const fs::path plain = fs::path(path).lexically_normal();
    // A link goes itself and not what it leads to: the folder that holds it decides.
    const fs::path at = ec ? fs::path() : fs::weakly_canonical(plain.parent_path(), ec) / plain.filename();
    const auto [end, rest] = std::mismatch(own.begin(), own.end(), at.begin(), at.end());
    if (ec || end != own.end() || rest == at.end())
      return invalid_argument(fmt::format("{}: lies outside {} and is not removed; remove it by hand",
                                          printable(path), printable(folder.string())));
  }
  return {};
}

}  // namespace

std::string HubCache::repo_folder(const HubName& name) const {
  return root_ + "/" + std::string(kPrefix) + name.owner + "--" + name.name;
}

Result<HubCache::Repo> HubCache::repo(const HubName& name) const {
  const fs::path folder = repo_folder(name);
  std::error_code ec;
  if (root_.empty() || !fs::is_directory(folder, ec))
    return not_found(
        fmt::format("{} is not in the cache; fetch it with: invar pull {}", name.repo(), name.text()));
  Repo r;
  r.name = HubName{name.owner, name.name, "", "main"};
  const auto refs = refs_of(folder);
  for (const auto& entry : fs::directory_iterator(folder / "snapshots", ec)) {
    Snapshot s;
    s.commit = entry.path().filename().string();
    if (!is_commit_id(s.commit)) continue;
    for (const auto& [revision, commit] : refs)
      if (commit == s.commit) s.revisions.push_back(revision);
    s.files = files_below(entry.path());
    for (const std::string& file : s.files)
      s.bytes += size_of(entry.path() / file);
    r.snapshots.push_back(std::move(s));
  }
  std::sort(r.snapshots.begin(), r.snapshots.end(),
            [](const Snapshot& a, const Snapshot& b) { return a.commit < b.commit; });
  for (const std::string& blob : files_below(folder / "blobs"))
    r.bytes += size_of(folder / "blobs" / blob);
  return r;
}

std::vector<HubCache::Repo> HubCache::repos() const {
  std::vector<Repo> out;
  std::error_code ec;
  if (root_.empty()) return out;
  for (const auto& entry : fs::directory_iterator(root_, ec)) {
    std::string folder = entry.path().filename().string();
    if (!folder.starts_with(kPrefix)) continue;
    folder.erase(0, kPrefix.size());
    const size_t cut = folder.find("--");
    if (cut == std::string::npos) continue;
    const auto name = parse_hub_name(folder.substr(0, cut) + "/" + folder.substr(cut + 2));
    if (!name.ok()) continue;
    if (auto r = repo(*name); r.ok()) out.push_back(std::move(*r));
  }
  std::sort(out.begin(), out.end(),
            [](const Repo& a, const Repo& b) { return a.name.repo() < b.name.repo(); });
  return out;
}

Result<std::string> HubCache::find(const HubName& name) const {
  ASSIGN_OR_RETURN(const Repo r, repo(name));
  const fs::path folder = repo_folder(name);
  std::string commit = name.revision;
  if (!is_commit_id(commit)) commit = read_ref(folder / "refs" / name.revision);
  for (const Snapshot& s : r.snapshots) {
    if (s.commit != commit) continue;
    auto selection = select_hub_files(name, s.files);
    if (!selection.ok())
      return selection.status().with_context(
          fmt::format("in the cache (invar pull {} fetches it)", name.text()));
    const fs::path snapshot = folder / "snapshots" / commit;
    return selection->model.empty() ? snapshot.string() : (snapshot / selection->model).string();
  }
  return not_found(fmt::format("{}: revision {} is not in the cache; fetch it with: invar pull {}",
                               name.repo(), name.revision, name.text()));
}

Result<HubCache::Removal> HubCache::plan_removal(const HubName& name, bool whole_repo) const {
  if (const std::string flaw = flaw_of(name); !flaw.empty())
    return invalid_argument(fmt::format("{}: {}; see: invar ls", printable(name.text()), flaw));
  ASSIGN_OR_RETURN(const Repo r, repo(name));
  const fs::path folder = repo_folder(name);
  Removal removal;
  if (whole_repo) {
    removal.bytes = r.bytes;
    removal.paths = {folder.string()};
    return removal;
  }
  std::string commit = name.revision;
  if (!is_commit_id(commit)) commit = read_ref(folder / "refs" / name.revision);
  const auto found = std::find_if(r.snapshots.begin(), r.snapshots.end(),
                                  [&](const Snapshot& s) { return s.commit == commit; });
  if (found == r.snapshots.end())
    return not_found(
        fmt::format("{}: revision {} is not in the cache; see: invar ls", name.repo(), name.revision));
  std::vector<std::string> files = found->files;
  if (!name.selector.empty()) {
    ASSIGN_OR_RETURN(const HubSelection selection, select_hub_files(name, found->files));
    files = selection.files;
  }
  const bool whole_snapshot = files.size() == found->files.size();
  std::set<std::string> kept, gone;
  for (const Snapshot& s : r.snapshots) {
    for (const std::string& file : s.files) {
      const bool goes = s.commit == commit && std::find(files.begin(), files.end(), file) != files.end();
      (goes ? gone : kept).insert(blob_of(folder / "snapshots" / s.commit / file));
    }
  }
  if (kept.empty()) return plan_removal(name, true);
  // Names before contents: what is left is whole at every moment.
  if (whole_snapshot) {
    for (const std::string& revision : found->revisions)
      removal.paths.push_back((folder / "refs" / revision).string());
    removal.paths.push_back((folder / "snapshots" / commit).string());
  } else {
    for (const std::string& file : files)
      removal.paths.push_back((folder / "snapshots" / commit / file).string());
  }
  for (const std::string& blob : gone) {
    if (blob.empty() || kept.contains(blob)) continue;
    removal.bytes += size_of(folder / "blobs" / blob);
    removal.paths.push_back((folder / "blobs" / blob).string());
  }
  RETURN_IF_ERROR(check_inside(removal, folder));
  return removal;
}

Status HubCache::remove(const Removal& removal) {
  for (const std::string& path : removal.paths) {
    std::error_code ec;
    fs::remove_all(path, ec);  // links are removed, not followed
    if (ec) return io_error(fmt::format("{}: cannot be removed: {}", printable(path), ec.message()));
  }
  return {};
}

}  // namespace invar
