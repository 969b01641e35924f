#include "cli/new_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/temporary_files.h"

namespace invar {

Status NewFile::failed(const char* what) const {
  const int error = errno;
  const bool full = error == ENOSPC || error == EFBIG || error == EDQUOT;
  return {full ? Code::kResourceExhausted : Code::kIo,
          fmt::format("{}: cannot {}: {}{}", path_, what, std::strerror(error),
                      !full           ? ""
                      : flag_.empty() ? "; free some space or choose another folder"
                                      : "; free some space or choose another folder with " + flag_)};
}

NewFile::~NewFile() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  ::unlink(temporary_.c_str());
  forget_temporary(temporary_);
}

Status NewFile::open() {
  struct stat info{};
  // The finished file is renamed to `path`, which would replace a device or a link's name by a plain file.
  if (::lstat(path_.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    return invalid_argument(fmt::format("{}{}: exists and is not a regular file; name another file",
                                        flag_.empty() ? "" : flag_ + " ", path_));
  temporary_ = fmt::format("{}.{}.tmp", path_, ::getpid());
  const int fd = open_temporary(temporary_, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return failed("create");
  file_ = ::fdopen(fd, "wb");
  CHECK(file_ != nullptr);
  return {};
}

Status NewFile::write(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) return failed("write");
  position_ += bytes.size();
  return {};
}

Result<std::string> NewFile::preview(uint64_t bytes) {
  CHECK(file_ != nullptr);
  if (std::fflush(file_) != 0 || ::ftruncate(::fileno(file_), off_t(bytes)) != 0) return failed("write");
  return temporary_;
}

Status NewFile::finish() {
  CHECK(file_ != nullptr);
  if (std::fflush(file_) != 0 || ::fsync(::fileno(file_)) != 0) return failed("write");
  if (!take_name(temporary_, path_, existing_))
    return errno == EEXIST ? name_is_taken(path_) : failed("rename to");
  forget_temporary(temporary_);
  std::fclose(std::exchange(file_, nullptr));
  return {};
}

}  // namespace invar
