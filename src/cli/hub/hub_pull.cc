#include "cli/hub/hub_pull.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>
#include <map>
#include <new>

#include "base/check.h"
#include "base/quote.h"
#include "cli/hub/hub_lock.h"

namespace invar {
namespace fs = std::filesystem;
namespace json = boost::json;
namespace {

// A hub's list has some 250 bytes per file, and hubs advise against more than 100,000 files.
constexpr int64_t kMaxListBytes = 32 << 20;
constexpr size_t kMaxParsedBytes = size_t{192} << 20;
constexpr int64_t kMaxFileBytes = int64_t{1} << 42;

bool is_hex(std::string_view s, size_t digits) {
  return s.size() == digits && std::all_of(s.begin(), s.end(), [](unsigned char c) {
           return std::isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

// Unreserved characters and slashes stay.
std::string url_escaped(std::string_view path) {
  std::string out;
  for (const unsigned char c : path) {
    if (std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '~' || c == '/')
      out += char(c);
    else
      out += fmt::format("%{:02X}", c);
  }
  return out;
}

std::string text_at(const json::object& o, std::string_view key) {
  const json::value* v = o.if_contains(key);
  return v != nullptr && v->is_string() ? std::string(v->get_string()) : "";
}

// Parsed JSON takes many times its text where that is made of small values: the parser gets so much and no
// more. Throws std::bad_alloc, as the parser expects.
class BoundedMemory : public json::memory_resource {
 public:
  explicit BoundedMemory(size_t most) : left_(most) {}

 private:
  // The library does not always give the alignment back with which it asked; none is beyond new's own.
  void* do_allocate(size_t bytes, size_t alignment) override {
    CHECK(alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
    if (bytes > left_) throw std::bad_alloc();
    void* p = ::operator new(bytes);
    left_ -= bytes;
    return p;
  }
  void do_deallocate(void* p, size_t bytes, size_t) override {
    ::operator delete(p);
    left_ += bytes;
  }
  bool do_is_equal(const json::memory_resource& other) const noexcept override { return this == &other; }

  size_t left_;
};

struct Listing {
  std::string commit;
  std::map<std::string, HubFile> files;
};

// {"sha": COMMIT, "siblings": [{"rfilename", "size", "blobId", "lfs": {"sha256"}}]}
Result<Listing> parse_listing(const std::string& body, const std::string& what) {
  const auto wrong = [&](const std::string& why) {
    return corrupt(fmt::format("{}: the hub's list of files cannot be used: {}", what, why));
  };
  BoundedMemory memory(kMaxParsedBytes);
  json::error_code error;
  json::value v(nullptr, &memory);
  try {
    json::parser parser(&memory);
    parser.reset(&memory);
    parser.write(body, error);
    if (!error) v = parser.release();
  } catch (const std::bad_alloc&) {
    return wrong("it is too large; check HF_ENDPOINT, or name another repository");
  }
  const json::object* o = v.if_object();
  if (error || o == nullptr) return wrong("it is no JSON object");
  Listing listing;
  listing.commit = text_at(*o, "sha");
  if (!is_commit_id(listing.commit)) return wrong("\"sha\" is no commit");
  const json::value* siblings = o->if_contains("siblings");
  if (siblings == nullptr || !siblings->is_array()) return wrong("\"siblings\" is missing");
  for (const json::value& entry : siblings->get_array()) {
    const json::object* s = entry.if_object();
    if (s == nullptr) return wrong("a sibling is no object");
    HubFile f;
    f.path = text_at(*s, "rfilename");
    if (!is_safe_repo_path(f.path)) return wrong("the path " + quote(f.path) + " leaves the repository");
    f.bytes = -1;
    if (const json::value* size = s->if_contains("size"); size != nullptr && size->is_int64())
      f.bytes = size->get_int64();
    f.git_id = text_at(*s, "blobId");
    if (const json::value* lfs = s->if_contains("lfs"); lfs != nullptr && lfs->is_object())
      f.sha256 = text_at(lfs->get_object(), "sha256");
    listing.files[f.path] = std::move(f);
  }
  return listing;
}

// Of a file that is to be fetched.
Status check_file(const HubFile& f, const std::string& what) {
  if (f.bytes < 0 || f.bytes > kMaxFileBytes)
    return corrupt(fmt::format("{}: the hub's list gives no size of this file", what));
  if (!(f.sha256.empty() ? is_hex(f.git_id, 40) : is_hex(f.sha256, 64)))
    return corrupt(fmt::format("{}: the hub's list gives no checksum of this file", what));
  return {};
}

Status make_folder(const fs::path& path) {
  std::error_code ec;
  fs::create_directories(path, ec);
  if (!ec) return {};
  return io_error(
      fmt::format("{}: cannot be made: {}; HF_HUB_CACHE names another place", path.string(), ec.message()));
}

// Appears under its name at once.
Status replace(const fs::path& path,
               const std::function<bool(const fs::path& temporary, std::error_code&)>& make) {
  RETURN_IF_ERROR(make_folder(path.parent_path()));
  const fs::path temporary = path.string() + fmt::format(".invar-tmp.{}", ::getpid());
  std::error_code ec;
  fs::remove(temporary, ec);
  if (make(temporary, ec)) fs::rename(temporary, path, ec);
  if (!ec) return {};
  std::error_code ignored;
  fs::remove(temporary, ignored);
  return io_error(fmt::format("{}: cannot be written: {}", path.string(), ec.message()));
}

Status link_to_blob(const fs::path& snapshot, const HubFile& f) {
  std::string up = "../../";
  for (size_t i = 0; i < size_t(std::count(f.path.begin(), f.path.end(), '/')); ++i)
    up += "../";
  return replace(snapshot / f.path, [&](const fs::path& temporary, std::error_code& ec) {
    fs::create_symlink(up + "blobs/" + f.etag(), temporary, ec);
    return !ec;
  });
}

Status write_ref(const fs::path& path, const std::string& commit) {
  return replace(path, [&](const fs::path& temporary, std::error_code& ec) {
    std::FILE* f = std::fopen(temporary.c_str(), "w");
    const bool written = f != nullptr && std::fputs(commit.c_str(), f) >= 0;
    const bool closed = f != nullptr && std::fclose(f) == 0;
    if (!written || !closed) ec = std::make_error_code(std::errc::io_error);
    return !ec;
  });
}

}  // namespace

Result<Pulled> pull(const HubCache& cache, const HubName& name, const PullOptions& options) {
  if (cache.root().empty())
    return not_found("there is no folder for a cache: set HF_HUB_CACHE, XDG_CACHE_HOME or HOME");
  ASSIGN_OR_RETURN(const std::unique_ptr<HubTransfer> transfer, HubTransfer::create(options.hub));
  const std::string api =
      fmt::format("/api/models/{}/revision/{}?blobs=true", name.repo(), url_escaped(name.revision));
  ASSIGN_OR_RETURN(const std::string body, transfer->get(api, name.text(), kMaxListBytes));
  ASSIGN_OR_RETURN(const Listing listing, parse_listing(body, name.text()));
  std::vector<std::string> paths;
  for (const auto& [path, file] : listing.files)
    paths.push_back(path);
  ASSIGN_OR_RETURN(const HubSelection selection, select_hub_files(name, paths));

  Pulled pulled;
  pulled.commit = listing.commit;
  for (const std::string& path : selection.files) {
    const HubFile& f = listing.files.at(path);
    const std::string what = fmt::format("{}: {}", name.repo(), path);
    RETURN_IF_ERROR(check_file(f, what));
    if (!options.sha256.empty() && path == selection.model && f.sha256 != options.sha256)
      return corrupt(fmt::format("{}: is another file than this name stands for (SHA-256 {} instead of {})",
                                 what, f.sha256.empty() ? "unknown" : f.sha256, options.sha256));
    pulled.files.push_back({f});
  }
  ASSIGN_OR_RETURN(const HubLock lock, HubLock::for_download(cache, name));
  const fs::path repo = cache.repo_folder(name), snapshot = repo / "snapshots" / listing.commit;
  RETURN_IF_ERROR(make_folder(repo / "blobs"));
  for (PulledFile& p : pulled.files) {
    HubDownload d;
    d.url_path = fmt::format("/{}/resolve/{}/{}", name.repo(), listing.commit, url_escaped(p.file.path));
    d.what = fmt::format("{}: {}", name.repo(), p.file.path);
    d.blob = (repo / "blobs" / p.file.etag()).string();
    d.lock = cache.root() + "/.locks/" + repo.filename().string() + "/" + p.file.etag() + ".lock";
    d.file = p.file;
    d.segment_bytes = options.segment_bytes;
    ASSIGN_OR_RETURN(p.fetched, download(*transfer, d));
    RETURN_IF_ERROR(link_to_blob(snapshot, p.file));
  }
  if (name.revision != listing.commit)
    RETURN_IF_ERROR(write_ref(repo / "refs" / name.revision, listing.commit));
  pulled.path = selection.model.empty() ? snapshot.string() : (snapshot / selection.model).string();
  return pulled;
}

}  // namespace invar
