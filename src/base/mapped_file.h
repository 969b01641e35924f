#pragma once
// MappedFile: a read-only memory map of a whole file. Move-only; the bytes live as long as the object. A file
// that is cut short meanwhile ends the process with a line that names it.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/mapped_fault.h"
#include "base/status.h"

namespace invar {

class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  // Modification time of what is mapped, nanoseconds since 1970: the path may name another file by now.
  int64_t modified_ns() const { return modified_ns_; }

  // Tells the kernel that [offset, offset + length) will not be read soon: its pages leave this process's
  // resident set (the data can be read again later).
  void drop(size_t offset, size_t length) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int64_t modified_ns_ = 0;
  std::string path_;
  MappedFault fault_;
};

}  // namespace invar
