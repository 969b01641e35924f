#pragma once
// MappedFault: says which file it was when a mapped one is cut short while it is in use, or its disk fails.
// Reading such memory raises SIGBUS, which would end the process without a word; with a MappedFault for those
// bytes it prints one line on stderr and ends with exit code 1. Owned by whoever mapped the file; move-only;
// any thread.

#include <cstddef>
#include <span>
#include <string_view>

namespace invar {

class MappedFault {
 public:
  MappedFault() = default;
  // The first one of the process takes over SIGBUS. Beyond some dozens of files at once, more go without the
  // line.
  MappedFault(std::span<const std::byte> mapped, std::string_view path);
  MappedFault(MappedFault&& other) noexcept;
  MappedFault& operator=(MappedFault&& other) noexcept;
  ~MappedFault();

 private:
  int slot_ = -1;  // in the table that the signal handler reads; -1: none
};

}  // namespace invar
