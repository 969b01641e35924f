#include "cli/benchmark/machine_limits.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/clock.h"

namespace invar {
namespace {

constexpr int kRuns = 7;

// Median seconds of `run`, after one that warms up.
template <class Run>
double median_seconds(const Run& run) {
  std::vector<double> seconds;
  run();
  for (int i = 0; i < kRuns; ++i) {
    const double start = now_s();
    run();
    seconds.push_back(now_s() - start);
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRuns / 2, seconds.end());
  return seconds[kRuns / 2];
}

}  // namespace

double stream_gb_per_s(ThreadPool& pool, const Buffer& memory) {
  constexpr size_t kPiece = size_t{1} << 20, kWords = kPiece / sizeof(uint64_t);
  const int64_t pieces = int64_t(memory.size() / kPiece);
  std::atomic<uint64_t> total{0};  // or nothing would have to be read
  const double seconds = median_seconds([&] {
    pool.run(pieces, [&](int64_t piece, int) {
      const uint64_t* p = memory.as<uint64_t>() + size_t(piece) * kWords;
      uint64_t sums[8] = {};
      for (size_t i = 0; i < kWords; i += 8) {
        __builtin_prefetch(p + i + 2048, 0, 2);
        for (size_t j = 0; j < 8; ++j)
          sums[j] += p[i + j];
      }
      for (const uint64_t sum : sums)
        total.fetch_add(sum, std::memory_order_relaxed);
    });
  });
  return double(pieces) * double(kPiece) / seconds / 1e9;
}

double peak_gmacs_per_s(ThreadPool& pool, int64_t (*peak)(int64_t rounds)) {
  constexpr int64_t kRounds = 20'000, kTasks = 16;  // several of each thread: none starts at once
  std::atomic<int64_t> macs{0};
  const double seconds = median_seconds([&] {
    macs = 0;
    pool.run(kTasks * pool.threads(), [&](int64_t, int) { macs += peak(kRounds); });
  });
  return double(macs) / seconds / 1e9;
}

}  // namespace invar
