#pragma once
// ThreadPool: the workers of one engine. A phase is a number of tiles; threads claim tiles one by one, so a
// preempted thread delays a phase by at most one tile. Owned by the backend; run() is called by one thread at
// a time (the engine thread), which works along as worker 0.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/function_ref.h"

namespace invar {

struct ThreadPoolOptions {
  int threads = 0;  // all of them, the caller included; 0 = cores this process may use
};

// Memory that is read soon. Need not be there: nobody reads it here.
struct AheadRange {
  const void* data = nullptr;
  size_t bytes = 0;
};

class ThreadPool {
 public:
  explicit ThreadPool(ThreadPoolOptions options = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Calls fn(tile, worker) once for every tile in [0, tiles), worker in [0, threads()). Returns when all
  // tiles are finished, not when all threads have arrived. A tile should take 10 to 100 microseconds.
  void run(int64_t tiles, FunctionRef<void(int64_t tile, int worker)> fn);

  // From now on threads that find no tile fetch these ranges into their caches, a share each, while they
  // wait: what the next phase reads from memory. Called between phases, like run().
  void fetch_ahead(const AheadRange& first, const AheadRange& second = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace invar
