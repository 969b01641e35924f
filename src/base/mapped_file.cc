#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace invar {

Result<MappedFile> MappedFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) return not_found(fmt::format("{}: no such file", path));
    return io_error(fmt::format("{}: cannot open: {}", path, std::strerror(error)));
  }
  struct stat info;
  const int stat_error = fstat(fd, &info) == 0 ? 0 : errno;
  if (stat_error != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    if (stat_error != 0)
      return io_error(fmt::format("{}: cannot read its size: {}", path, std::strerror(stat_error)));
    return invalid_argument(fmt::format("{}: {}; a regular file is needed", path,
                                        S_ISDIR(info.st_mode) ? "is a directory" : "is a device or pipe"));
  }
  MappedFile file;
  file.path_ = path;
  file.size_ = static_cast<size_t>(info.st_size);
  file.modified_ns_ = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  if (file.size_ != 0) {
    void* data = mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      const int error = errno;
      ::close(fd);
      file.size_ = 0;
      return io_error(fmt::format("{}: cannot map {} bytes: {}", path, info.st_size, std::strerror(error)));
    }
    file.data_ = static_cast<const std::byte*>(data);
    file.fault_ = MappedFault(file.bytes(), path);
  }
  ::close(fd);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      modified_ns_(other.modified_ns_),
      path_(std::move(other.path_)),
      fault_(std::move(other.fault_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(modified_ns_, other.modified_ns_);
  std::swap(path_, other.path_);
  std::swap(fault_, other.fault_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::drop(size_t offset, size_t length) const {
  CHECK(offset <= size_ && length <= size_ - offset);
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  // Only whole pages inside the range; at the end of the file its last page counts as whole.
  const size_t begin = (offset + page - 1) / page * page;
  const size_t end = offset + length == size_ ? size_ : (offset + length) / page * page;
  if (begin < end) madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace invar
