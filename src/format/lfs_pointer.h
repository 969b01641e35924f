#pragma once
// What a clone without Git LFS has where the large files should be: three lines of text.

#include <cstddef>
#include <cstring>
#include <span>

#include "base/status.h"

namespace invar {

// An error with the remedy if the bytes of a file are such a pointer.
inline Status check_no_lfs_pointer(std::span<const std::byte> file) {
  constexpr char kBegin[] = "version https://git-lfs";
  constexpr size_t kLength = sizeof kBegin - 1;
  if (file.size() < kLength || std::memcmp(file.data(), kBegin, kLength) != 0) return {};
  return unsupported(
      "a Git LFS pointer, not the file itself; fetch it with git lfs pull, or with invar pull");
}

}  // namespace invar
