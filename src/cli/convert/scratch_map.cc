#include "cli/convert/scratch_map.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/size_text.h"
#include "base/temporary_files.h"

namespace invar {
namespace {

// A descriptor without a name, or -1 with errno.
int open_unnamed(const std::string& path) {
  std::error_code ec;
  const std::string folder = std::filesystem::absolute(path, ec).parent_path().string();
  int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
  // Some file systems have no files without a name until they lose it.
  const std::string name = fmt::format("{}.{}.scratch.tmp", path, ::getpid());
  fd = open_temporary(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return fd;
  ::unlink(name.c_str());
  forget_temporary(name);
  return fd;
}

}  // namespace

Result<ScratchMap> ScratchMap::create(const std::string& path, uint64_t bytes) {
  ScratchMap scratch;
  if (bytes == 0) return scratch;
  const auto failed = [&](const char* what, int error) -> Status {
    const bool full = error == ENOSPC || error == EFBIG || error == EDQUOT;
    return {full ? Code::kResourceExhausted : Code::kIo,
            fmt::format("{}: cannot {} {} beside it for the new weights: {}{}", path, what, size_text(bytes),
                        std::strerror(error), full ? "; free some space or choose another folder" : "")};
  };
  const int fd = open_unnamed(path);
  if (fd < 0) return failed("get", errno);
  int error = 0;
  do {
    error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  if (error != 0) {
    ::close(fd);
    return failed("reserve", error);
  }
  void* map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  error = errno;
  ::close(fd);
  if (map == MAP_FAILED) return failed("map", error);
  scratch.data_ = static_cast<std::byte*>(map);
  scratch.size_ = bytes;
  scratch.fault_ = MappedFault(scratch.bytes(), path);
  return scratch;
}

ScratchMap::ScratchMap(ScratchMap&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      fault_(std::move(other.fault_)) {}

ScratchMap& ScratchMap::operator=(ScratchMap&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(fault_, other.fault_);
  return *this;
}

ScratchMap::~ScratchMap() {
  if (data_ != nullptr) munmap(data_, size_);
}

void ScratchMap::drop(std::span<const std::byte> part) const {
  if (part.empty()) return;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<size_t>(part.data() - data_);
  const size_t begin = offset / page * page;
  const size_t end = std::min(size_, (offset + part.size() + page - 1) / page * page);
  if (begin < end) madvise(data_ + begin, end - begin, MADV_DONTNEED);
}

}  // namespace invar
