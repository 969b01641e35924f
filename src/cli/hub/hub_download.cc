#include "cli/hub/hub_download.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/hash.h"
#include "base/progress.h"
#include "base/size_text.h"

namespace invar {
namespace fs = std::filesystem;
namespace {

Status failed(const std::string& path, const char* what) {
  const int e = errno;
  const std::string text = fmt::format("{}: {}: {}", path, what, std::strerror(e));
  return e == ENOSPC || e == EDQUOT || e == EFBIG ? resource_exhausted(text) : io_error(text);
}

class File {
 public:
  static Result<File> open(const std::string& path, int flags) {
    File f;
    f.fd_ = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
    f.path_ = path;
    if (f.fd_ < 0) return failed(path, "cannot be opened");
    return f;
  }
  File(File&& o) noexcept : fd_(std::exchange(o.fd_, -1)), path_(std::move(o.path_)) {}
  File& operator=(File&&) = delete;
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }
  const std::string& path() const { return path_; }

  Status write_at(int64_t offset, std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return failed(path_, "cannot be written");
      offset += n;
      bytes.remove_prefix(size_t(n));
    }
    return {};
  }

 private:
  File() = default;
  int fd_ = -1;
  std::string path_;
};

// Waits for others that fetch the same file.
Result<File> lock_file(const std::string& path) {
  std::error_code ec;
  fs::create_directories(fs::path(path).parent_path(), ec);
  ASSIGN_OR_RETURN(File lock, File::open(path, O_RDWR | O_CREAT));
  if (::flock(lock.fd(), LOCK_EX | LOCK_NB) == 0) return lock;
  fmt::print(stderr, "invar: waiting for another download of the same file\n");
  while (::flock(lock.fd(), LOCK_EX) != 0)
    if (errno != EINTR) return failed(path, "cannot be locked");
  return lock;
}

// SHA-1 of "blob SIZE" and the content, as git names what it keeps.
Result<std::string> git_id_of(const std::string& path, int64_t bytes) {
  ASSIGN_OR_RETURN(const File file, File::open(path, O_RDONLY));
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  const std::string head = fmt::format("blob {}", bytes);
  if (context == nullptr || EVP_DigestInit_ex(context.get(), EVP_sha1(), nullptr) != 1 ||
      EVP_DigestUpdate(context.get(), head.c_str(), head.size() + 1) != 1)
    return internal_error("SHA-1 is not available");
  std::vector<char> buffer(size_t{1} << 20);
  for (;;) {
    const ssize_t n = ::read(file.fd(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(path, "cannot be read");
    if (n == 0) break;
    EVP_DigestUpdate(context.get(), buffer.data(), size_t(n));
  }
  uint8_t digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_DigestFinal_ex(context.get(), digest, &size);
  return hex({digest, size});
}

Status check_hash(const HubDownload& d, const std::string& part) {
  std::string got;
  if (!d.file.sha256.empty()) {
    ASSIGN_OR_RETURN(const Digest digest, sha256_file(part));
    got = hex(digest);
  } else {
    ASSIGN_OR_RETURN(got, git_id_of(part, d.file.bytes));
  }
  if (got == d.file.etag()) return {};
  return corrupt(fmt::format("{}: the {} of what came is {} instead of {}; it is removed, run it again",
                             d.what, d.file.sha256.empty() ? "git id" : "SHA-256", got, d.file.etag()));
}

// Which segments of the unfinished file are whole: one byte each, in a file beside it.
class Journal {
 public:
  static Result<Journal> open(const std::string& path, size_t segments, bool keep) {
    ASSIGN_OR_RETURN(File file, File::open(path, O_RDWR | O_CREAT | (keep ? 0 : O_TRUNC)));
    Journal j(std::move(file));
    j.done_.assign(segments, 0);
    struct stat s{};
    if (::fstat(j.file_.fd(), &s) == 0 && s.st_size == off_t(segments))
      (void)!::pread(j.file_.fd(), j.done_.data(), segments, 0);
    else if (::ftruncate(j.file_.fd(), off_t(segments)) != 0)
      return failed(path, "cannot be written");
    return j;
  }
  bool is_done(size_t segment) const { return done_[segment] == 1; }
  Status note(size_t segment) {
    done_[segment] = 1;
    return file_.write_at(int64_t(segment), std::string_view("\1", 1));
  }

 private:
  explicit Journal(File file) : file_(std::move(file)) {}
  File file_;
  std::vector<char> done_;
};

Status check_space(const std::string& folder, uint64_t needed, const std::string& what) {
  struct statvfs s{};
  if (::statvfs(folder.c_str(), &s) != 0) return {};
  const uint64_t free = uint64_t(s.f_bavail) * s.f_frsize;
  if (free >= needed) return {};
  return resource_exhausted(
      fmt::format("{}: needs {} in {}, where {} are free; make room, or set HF_HUB_CACHE", what,
                  size_text(needed), folder, size_text(free)));
}

Status fetch_whole(HubTransfer& transfer, const HubDownload& d, const File& part) {
  Progress progress(d.what, d.file.bytes);
  int64_t reached = 0;  // after a break the same bytes come again
  HubPart p;
  p.path = d.url_path, p.what = d.what, p.ranged = false;
  p.end = p.total = d.file.bytes;
  p.write = [&](int64_t offset, std::string_view bytes) {
    const int64_t end = offset + int64_t(bytes.size());
    if (end > reached) progress.advance(end - std::exchange(reached, end));
    return part.write_at(offset, bytes);
  };
  std::vector<HubPart> parts;
  parts.push_back(std::move(p));
  return transfer.run(std::move(parts));
}

Status fetch_segments(HubTransfer& transfer, const HubDownload& d, const File& part, Journal& journal) {
  Progress progress(d.what, d.file.bytes);
  std::vector<HubPart> parts;
  for (int64_t begin = 0, i = 0; begin < d.file.bytes; begin += d.segment_bytes, ++i) {
    HubPart p;
    p.path = d.url_path, p.what = d.what;
    p.begin = begin, p.end = std::min(begin + d.segment_bytes, d.file.bytes), p.total = d.file.bytes;
    if (journal.is_done(size_t(i))) {
      progress.advance(p.end - p.begin);
      continue;
    }
    p.write = [&](int64_t offset, std::string_view bytes) {
      progress.advance(int64_t(bytes.size()));
      return part.write_at(offset, bytes);
    };
    // Bytes first, so that the journal never promises what is not there.
    p.finish = [&journal, &part, i] {
      if (::fdatasync(part.fd()) != 0) return failed(part.path(), "cannot be written");
      return journal.note(size_t(i));
    };
    parts.push_back(std::move(p));
  }
  return parts.empty() ? Status() : transfer.run(std::move(parts));
}

}  // namespace

Result<bool> download(HubTransfer& transfer, const HubDownload& d) {
  struct stat s{};
  const auto is_there = [&] { return ::stat(d.blob.c_str(), &s) == 0 && s.st_size == d.file.bytes; };
  if (is_there()) return false;
  ASSIGN_OR_RETURN(const File lock, lock_file(d.lock));
  if (is_there()) return false;

  const std::string part_path = d.blob + ".invar-part", journal_path = part_path + ".done";
  // A file of another length is of another time.
  const bool keep = ::stat(part_path.c_str(), &s) == 0 && s.st_size == d.file.bytes;
  const auto drop = [&] {
    ::unlink(journal_path.c_str());
    ::unlink(part_path.c_str());
  };
  {
    const uint64_t there = keep ? uint64_t(s.st_blocks) * 512 : 0;
    const uint64_t needed = uint64_t(d.file.bytes) - std::min(there, uint64_t(d.file.bytes));
    RETURN_IF_ERROR(check_space(fs::path(d.blob).parent_path().string(), needed, d.what));
    ASSIGN_OR_RETURN(const File part, File::open(part_path, O_RDWR | O_CREAT | (keep ? 0 : O_TRUNC)));
    if (::ftruncate(part.fd(), d.file.bytes) != 0) return failed(part_path, "cannot be written");
    const size_t segments = size_t((d.file.bytes + d.segment_bytes - 1) / d.segment_bytes);
    ASSIGN_OR_RETURN(Journal journal, Journal::open(journal_path, segments, keep));
    Status fetched = fetch_segments(transfer, d, part, journal);
    if (fetched.code() == Code::kUnsupported) fetched = fetch_whole(transfer, d, part);
    if (!fetched.ok()) {
      if (fetched.code() == Code::kCorrupt) drop();
      return fetched;
    }
  }
  if (const Status hash = check_hash(d, part_path); !hash.ok()) {
    drop();
    return hash;
  }
  if (::rename(part_path.c_str(), d.blob.c_str()) != 0) return failed(d.blob, "cannot be renamed to");
  ::unlink(journal_path.c_str());
  return true;
}

}  // namespace invar
