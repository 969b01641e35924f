#pragma once
// ReadAhead: brings a mapped file into memory from its beginning to its end, on a thread of its own, with a
// progress line. Whoever needs a part earlier faults it in as ever.

#include <atomic>
#include <cstddef>
#include <optional>
#include <span>
#include <thread>

namespace invar {

class ReadAhead {
 public:
  // map: begins at a page and outlives this. progress: a line for maps of at least `least_shown` bytes. Does
  // nothing for a file that is in memory already.
  explicit ReadAhead(std::span<const std::byte> map, bool progress, size_t least_shown = size_t{64} << 20);
  ~ReadAhead();  // ends early
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  bool needed() const { return thread_.joinable(); }
  void wait();  // from one thread

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace invar
