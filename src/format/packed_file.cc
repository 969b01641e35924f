#include "format/packed_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/log.h"
#include "base/size_text.h"
#include "base/temporary_files.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'I', 'N', 'V', 'R', 'P', 'A', 'C', 'K'};
constexpr size_t kVersionAt = 8, kKeyAt = 24;
constexpr const char* kTemporary = ".tmp.";

template <class T>
void append(std::vector<std::byte>& out, T value) {
  const auto* p = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), p, p + sizeof value);
}

void append_text(std::vector<std::byte>& out, const std::string& text) {
  append<uint32_t>(out, static_cast<uint32_t>(text.size()));
  const auto* p = reinterpret_cast<const std::byte*>(text.data());
  out.insert(out.end(), p, p + text.size());
}

// Everything in the header that follows from key and sections: two files with equal prefixes hold the same
// sections at the same places. Then come one checksum per section, the checksum of all that, and zeros up to
// the first section.
std::vector<std::byte> header_prefix(const Digest& key, std::span<const PackedSection> sections,
                                     std::vector<size_t>* offsets) {
  std::vector<std::byte> directory;
  for (const PackedSection& s : sections) {
    append_text(directory, s.name);
    append_text(directory, s.form == nullptr ? "vector" : s.form->name);
    append(directory, s.rows);
    append(directory, s.cols);
  }
  directory.resize(round_up(directory.size(), 8));
  std::vector<std::byte> out(reinterpret_cast<const std::byte*>(kMagic),
                             reinterpret_cast<const std::byte*>(kMagic) + sizeof kMagic);
  const size_t header = kKeyAt + key.size() + 8 + directory.size() + 8 * (sections.size() + 1);
  *offsets = section_offsets(sections, round_up(header, kPackedFileAlignment));
  append<uint32_t>(out, kPackedLayoutVersion);
  append<uint32_t>(out, static_cast<uint32_t>(sections.size()));
  append<uint64_t>(out, offsets->back());
  const auto* k = reinterpret_cast<const std::byte*>(key.data());
  out.insert(out.end(), k, k + key.size());
  append<uint64_t>(out, directory.size());
  out.insert(out.end(), directory.begin(), directory.end());
  return out;
}

uint64_t load64(const std::byte* p) {
  uint64_t value;
  std::memcpy(&value, p, 8);
  return value;
}

Status check_header(std::span<const std::byte> file, std::span<const std::byte> prefix, size_t sections,
                    size_t expected_size) {
  const size_t end = prefix.size() + 8 * sections;  // of what the header checksum covers
  if (file.size() < kKeyAt + 32 || std::memcmp(file.data(), kMagic, sizeof kMagic) != 0)
    return corrupt("is not a packed file");
  if (std::memcmp(file.data() + kVersionAt, prefix.data() + kVersionAt, 4) != 0)
    return corrupt("has another layout version");
  if (std::memcmp(file.data() + kKeyAt, prefix.data() + kKeyAt, 32) != 0)
    return corrupt("was made from another model file");
  if (file.size() != expected_size)
    return corrupt(fmt::format("has the wrong size, {} bytes instead of {}", file.size(), expected_size));
  if (hash64(file.first(end)) != load64(file.data() + end) ||
      std::memcmp(file.data(), prefix.data(), prefix.size()) != 0)
    return corrupt("has a damaged header");
  return {};
}

Status file_error(const std::string& path, const char* what, int error) {
  const std::string text = fmt::format("{}: cannot {}: {}", path, what, std::strerror(error));
  return error == ENOSPC || error == EDQUOT || error == EFBIG ? resource_exhausted(text) : io_error(text);
}

// Removes what processes that died while packing left behind: their temporary files are no longer locked.
void remove_orphans(const std::string& path) {
  std::error_code ec;
  const std::string start = fs::path(path).filename().string() + kTemporary;
  fs::directory_iterator item(fs::path(path).parent_path(), ec);
  for (; !ec && item != fs::directory_iterator(); item.increment(ec)) {
    if (!item->path().filename().string().starts_with(start)) continue;
    const int fd = ::open(item->path().c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) continue;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) unlink(item->path().c_str());
    close(fd);
  }
}

// A new, locked file. Between making and locking it somebody may take it for an orphan: then it is made
// again.
Result<int> create_locked(const std::string& path, std::string* name) {
  static std::atomic<uint64_t> counter{0};
  for (int attempt = 0; attempt < 100; ++attempt) {
    *name = fmt::format("{}{}{}.{}", path, kTemporary, getpid(), counter++);
    const int fd = open_temporary(*name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) {
      if (errno == EEXIST) continue;
      return file_error(path, "create a file beside it", errno);
    }
    const bool taken = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    struct stat info = {};
    if (!taken && fstat(fd, &info) == 0 && info.st_nlink == 1) return fd;
    close(fd);
    forget_temporary(*name);
  }
  return io_error(fmt::format("{}: cannot create a temporary file", path));
}

}  // namespace

size_t PackedSection::bytes() const {
  if (form == nullptr) return static_cast<size_t>(rows) * sizeof(float);
  return matrix_bytes(*form, rows, cols);
}

std::vector<size_t> section_offsets(std::span<const PackedSection> sections, size_t start) {
  std::vector<size_t> offsets;
  offsets.reserve(sections.size() + 1);
  for (const PackedSection& s : sections) {
    offsets.push_back(start);
    start = round_up(start + s.bytes(), 64);
  }
  offsets.push_back(start);
  return offsets;
}

Result<std::unique_ptr<PackedFile>> PackedFile::open(const std::string& path, const Digest& key,
                                                     const std::vector<PackedSection>& sections,
                                                     size_t start) {
  std::unique_ptr<PackedFile> file(new PackedFile);
  file->path_ = path;
  file->prefix_ = header_prefix(key, sections, &file->offsets_);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe there must not hang us
  if (fd < 0) {
    if (errno == ENOENT) return not_found(path + ": no such file");
    return file_error(path, "open it", errno);
  }
  file->fd_ = fd;
  struct stat info = {};
  if (fstat(fd, &info) != 0) return file_error(path, "read its size", errno);
  if (!S_ISREG(info.st_mode) || static_cast<size_t>(info.st_size) <= start)
    return corrupt(path + (start == 0 ? " is not a packed file" : " ends before its weights"));
  void* map = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return file_error(path, "map it", errno);
  file->take_map(map, static_cast<size_t>(info.st_size), start);
  const Status status =
      check_header({file->data_, file->size_}, file->prefix_, sections.size(), file->offsets_.back());
  if (!status.ok()) return corrupt(fmt::format("{} {}", path, status.message()));
  for (const PackedSection& s : sections) {
    file->names_.push_back(s.name);
    file->sizes_.push_back(s.bytes());
  }
  return file;
}

Result<std::unique_ptr<PackedFile>> PackedFile::create(const std::string& path, const Digest& key,
                                                       const std::vector<PackedSection>& sections,
                                                       std::span<const std::byte> front) {
  CHECK(front.size() % kPackedFileAlignment == 0);
  std::unique_ptr<PackedFile> file(new PackedFile);
  file->path_ = path;
  file->prefix_ = header_prefix(key, sections, &file->offsets_);
  std::error_code ec;
  fs::create_directories(fs::path(path).parent_path(), ec);
  if (ec) return io_error(fmt::format("{}: cannot make the folder: {}", path, ec.message()));
  remove_orphans(path);
  std::string temporary;
  ASSIGN_OR_RETURN(file->fd_, create_locked(path, &temporary));
  file->temporary_ = temporary;
  const size_t size = front.size() + file->offsets_.back();
  int error = 0;
  do {
    error = posix_fallocate(file->fd_, 0, static_cast<off_t>(size));
  } while (error == EINTR);
  if (error != 0) return file_error(path, ("reserve " + size_text(size)).c_str(), error);
  void* map = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd_, 0);
  if (map == MAP_FAILED) return file_error(path, "map it", errno);
  file->take_map(map, size, front.size());
  std::copy(front.begin(), front.end(), static_cast<std::byte*>(map));
  file->writable_ = true;
  for (const PackedSection& s : sections) {
    file->names_.push_back(s.name);
    file->sizes_.push_back(s.bytes());
  }
  return file;
}

PackedFile::~PackedFile() {
  closing_.store(true, std::memory_order_relaxed);
  read_ahead_.reset();
  if (verifier_.joinable()) verifier_.join();
  if (publisher_.joinable()) publisher_.join();
  if (!temporary_.empty()) {
    unlink(temporary_.c_str());
    forget_temporary(temporary_);
  }
  if (data_ != nullptr) munmap(data_ - start_, start_ + size_);
  if (fd_ >= 0) close(fd_);
}

void PackedFile::take_map(void* map, size_t bytes, size_t start) {
  start_ = start;
  data_ = static_cast<std::byte*>(map) + start;
  size_ = bytes - start;
  fault_ = MappedFault({static_cast<std::byte*>(map), bytes}, path_);
}

std::byte* PackedFile::mutable_section(size_t i) {
  CHECK(writable_);
  return data_ + offsets_[i];
}

void PackedFile::publish(Existing existing) {
  CHECK(writable_);
  writable_ = false;
  const size_t first = offsets_.front();
  if (first < size_) mprotect(data_ + first, size_ - first, PROT_READ);
  publisher_ = std::thread([this, existing] {
    published_ = write_and_rename(existing);
    if (!published_.ok() && start_ == 0)
      log_warning("{}; the next start packs the weights again", published_.message());
  });
}

Status PackedFile::wait_published() {
  if (publisher_.joinable()) publisher_.join();
  return published_;
}

Status PackedFile::wait_verified() {
  if (verifier_.joinable()) verifier_.join();
  if (!damaged()) return {};
  return corrupt(fmt::format("{}: damaged; what was answered cannot be trusted", path_));
}

Status PackedFile::write_and_rename(Existing existing) {
  std::vector<std::byte> header = prefix_;
  for (size_t i = 0; i < sizes_.size(); ++i)
    append(header, hash64({section(i), sizes_[i]}));
  append(header, hash64(header));
  std::memcpy(data_, header.data(), header.size());
  mprotect(data_ - start_, start_ + size_, PROT_READ);
  if (fsync(fd_) != 0) return file_error(path_, "write it", errno);
  if (!take_name(temporary_, path_, existing))
    return errno == EEXIST ? name_is_taken(path_) : file_error(path_, "rename to it", errno);
  forget_temporary(temporary_);
  temporary_.clear();
  const int folder = ::open(fs::path(path_).parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    fsync(folder);  // the name itself; without it a crash only costs packing again
    close(folder);
  }
  return {};
}

void PackedFile::read_ahead(bool progress) {
  CHECK(!read_ahead_);
  read_ahead_.emplace(std::span<const std::byte>(data_ - start_, start_ + size_), progress);
}

Status PackedFile::verify() const {
  const std::byte* checksums = data_ + prefix_.size();
  for (size_t i = 0; i < sizes_.size() && !closing_.load(std::memory_order_relaxed); ++i)
    if (hash64({section(i), sizes_[i]}) != load64(checksums + 8 * i))
      return corrupt(fmt::format("{}: section {} is damaged", path_, names_[i]));
  return {};
}

void PackedFile::verify_in_background() {
  CHECK(!verifier_.joinable());
  verifier_ = std::thread([this] {
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 10);  // of this thread; answers come first
    const Status status = verify();
    if (status.ok()) return;
    damaged_.store(true, std::memory_order_release);
    if (start_ == 0) unlink(path_.c_str());
    log_error("{}: {}; answers of this run cannot be trusted, start again", status.message(),
              start_ == 0 ? "it is removed" : "copy the file again, or convert its source again");
  });
}

}  // namespace invar
