#pragma once
// For tests: the bytes that this process has asked for with operator new, to prove that hostile files cannot
// make a parser ask for much. Counts nothing under a sanitizer, which has its own allocator.

#include <cstddef>

namespace invar {

struct AllocationProbe {
  static size_t total();    // asked for so far
  static size_t largest();  // single request since reset()
  static void reset();
};

}  // namespace invar
