#include "format/read_ahead.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/progress.h"

namespace invar {
namespace {

constexpr size_t kStep = size_t{4} << 20;  // short enough to stop soon, long enough for a disk
constexpr size_t kSamples = 64;  // pages that stand for all; asking for each would take milliseconds

size_t page_bytes() {
  return static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// True as well where the kernel does not say, of a file that somebody else owns: then it is read by need.
bool in_memory(std::span<const std::byte> map) {
  const size_t page = page_bytes(), pages = map.size() / page;
  for (size_t i = 0; i < std::min(kSamples, pages); ++i) {
    const size_t at = pages <= kSamples ? i : i * (pages - 1) / (kSamples - 1);
    unsigned char resident = 0;
    if (mincore(const_cast<std::byte*>(map.data()) + at * page, page, &resident) != 0) return true;
    if ((resident & 1) == 0) return false;
  }
  return true;
}

// Returns when the step at `at` is there, with the next one on its way. Kernels before 5.14 only begin to
// read. An error of the disk shows where the bytes are used.
void read_step(std::span<const std::byte> map, size_t at) {
  auto* from = const_cast<std::byte*>(map.data()) + at;
  const size_t left = map.size() - at;
  madvise(from, std::min(2 * kStep, left), MADV_WILLNEED);
#ifdef MADV_POPULATE_READ
  madvise(from, std::min(kStep, left), MADV_POPULATE_READ);
#endif
}

}  // namespace

ReadAhead::ReadAhead(std::span<const std::byte> map, bool progress, size_t least_shown) {
  if (map.empty() || in_memory(map)) return;
  thread_ = std::thread([this, map, shown = progress && map.size() >= least_shown] {
    std::optional<Progress> line;
    if (shown) line.emplace("reading weights", static_cast<int64_t>(map.size()));
    for (size_t at = 0; at < map.size() && !stop_.load(std::memory_order_relaxed); at += kStep) {
      read_step(map, at);
      if (line) line->advance(static_cast<int64_t>(std::min(kStep, map.size() - at)));
    }
  });
}

void ReadAhead::wait() {
  if (thread_.joinable()) thread_.join();
}

ReadAhead::~ReadAhead() {
  stop_.store(true, std::memory_order_relaxed);
  wait();
}

}  // namespace invar
