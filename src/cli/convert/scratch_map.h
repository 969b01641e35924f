#pragma once
// ScratchMap: zeroed memory with a file without a name behind it, so that it may be larger than the memory of
// the machine. Its space on disk is reserved at once and goes with the object, or with the process.
// Move-only; writers of different bytes need no lock.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/mapped_fault.h"
#include "base/status.h"

namespace invar {

class ScratchMap {
 public:
  // The file lies in the folder of `path`, which errors name. A full disk is an error here, not a signal
  // later.
  static Result<ScratchMap> create(const std::string& path, uint64_t bytes);

  ScratchMap() = default;
  ScratchMap(ScratchMap&& other) noexcept;
  ScratchMap& operator=(ScratchMap&& other) noexcept;
  ~ScratchMap();

  std::span<std::byte> bytes() const { return {data_, size_}; }
  bool holds(std::span<const std::byte> part) const {
    return !part.empty() && part.data() >= data_ && part.data() < data_ + size_;
  }
  // Lets a part leave the resident set; it stays readable.
  void drop(std::span<const std::byte> part) const;

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  MappedFault fault_;
};

}  // namespace invar
