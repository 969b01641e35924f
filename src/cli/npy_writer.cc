#include "cli/npy_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/temporary_files.h"

namespace invar {

static_assert(std::endian::native == std::endian::little, "rows are written as they lie in memory");

Status NpyWriter::failed(const char* what) const {
  const int error = errno;
  const char* remedy = error == ENOSPC || error == EFBIG || error == EDQUOT
                           ? "; free some space or choose another folder with --out"
                           : "";
  const Code code = *remedy ? Code::kResourceExhausted : Code::kIo;
  return {code, fmt::format("{}: cannot {}: {}{}", path_, what, std::strerror(error), remedy)};
}

Result<NpyWriter> NpyWriter::create(const std::string& path, int64_t rows, int64_t cols) {
  NpyWriter writer(path, rows, cols);
  // The finished file is renamed to `path`, which would replace a device or a link's name by a plain file.
  struct stat info;
  if (lstat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    return invalid_argument(
        fmt::format("--out {}: exists and is not a regular file; name another file", path));
  writer.temporary_ = fmt::format("{}.{}.tmp", path, ::getpid());
  const int fd = open_temporary(writer.temporary_, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return writer.failed("create");
  writer.file_ = ::fdopen(fd, "wb");
  CHECK(writer.file_ != nullptr);

  // Magic, version, u16 length, then a Python dict padded with blanks so that the data starts at a multiple
  // of 64.
  std::string head =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, cols);
  head.append(63 - (10 + head.size()) % 64, ' ');
  head += '\n';
  std::string prefix("\x93NUMPY\x01\x00", 8);
  prefix += static_cast<char>(head.size() & 255);
  prefix += static_cast<char>(head.size() >> 8);
  prefix += head;
  if (std::fwrite(prefix.data(), 1, prefix.size(), writer.file_) != prefix.size())
    return writer.failed("write");
  return writer;
}

NpyWriter::NpyWriter(NpyWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      rows_(other.rows_),
      cols_(other.cols_),
      written_(other.written_),
      file_(std::exchange(other.file_, nullptr)) {}

NpyWriter::~NpyWriter() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  ::unlink(temporary_.c_str());
  forget_temporary(temporary_);
}

Status NpyWriter::append(std::span<const float> row) {
  CHECK(int64_t(row.size()) == cols_ && written_ < rows_);
  if (std::fwrite(row.data(), sizeof(float), row.size(), file_) != row.size()) return failed("write");
  ++written_;
  return {};
}

Status NpyWriter::finish() {
  CHECK(written_ == rows_);
  if (std::fflush(file_) != 0 || ::fsync(::fileno(file_)) != 0) return failed("write");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return failed("rename to");
  forget_temporary(temporary_);
  std::fclose(std::exchange(file_, nullptr));
  return {};
}

}  // namespace invar
