#include "format/allocation_probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "base/testing/sanitized.h"

namespace {

std::atomic<size_t> total_bytes{0}, largest_request{0};

}  // namespace

#if !INVAR_SANITIZED
void* operator new(size_t n) {
  total_bytes += n;
  size_t seen = largest_request;
  while (n > seen && !largest_request.compare_exchange_weak(seen, n)) {
  }
  if (void* p = std::malloc(std::max<size_t>(n, 1))) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
#endif

namespace invar {

size_t AllocationProbe::total() {
  return total_bytes;
}
size_t AllocationProbe::largest() {
  return largest_request;
}
void AllocationProbe::reset() {
  largest_request = 0;
}

#if !INVAR_SANITIZED
TEST(AllocationProbe, sees_what_is_allocated) {
  AllocationProbe::reset();
  const size_t before = AllocationProbe::total();
  std::vector<char> big(12345);
  EXPECT_GE(AllocationProbe::largest(), 12345u);
  EXPECT_GE(AllocationProbe::total() - before, 12345u);
}
#endif

}  // namespace invar
