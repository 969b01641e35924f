#include "cli/benchmark/machine_limits.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "cli/benchmark/time_runs.h"

namespace invar {
namespace {

constexpr size_t kPiece = size_t{1} << 20;
constexpr size_t kStreamed = size_t{256} << 20;
constexpr int kRuns = 3;

}  // namespace

double stream_gb_per_s(ThreadPool& pool, const Buffer& memory, int runs) {
  constexpr size_t kWords = kPiece / sizeof(uint64_t);
  const int64_t pieces = int64_t(memory.size() / kPiece);
  std::atomic<uint64_t> total{0};  // or nothing would have to be read
  const Timing t = time_runs(runs, [&] {
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
  return double(pieces) * double(kPiece) / t.median / 1e9;
}

double peak_gmacs_per_s(ThreadPool& pool, int64_t (*peak)(int64_t rounds), int runs) {
  constexpr int64_t kRounds = 20'000, kTasks = 16;  // several of each thread: none starts at once
  std::atomic<int64_t> macs{0};
  const Timing t = time_runs(runs, [&] {
    macs = 0;
    pool.run(kTasks * pool.threads(), [&](int64_t, int) { macs += peak(kRounds); });
  });
  return double(macs) / t.median / 1e9;
}

Result<MachineLimits> measure_limits(ThreadPool& pool, const KernelTable& kernels) {
  ASSIGN_OR_RETURN(Buffer memory, Buffer::allocate(kStreamed));
  // Untouched, all of it would be one page of zeros; touched by those who read it, it lies near them.
  pool.run(int64_t(kStreamed / kPiece),
           [&](int64_t piece, int) { std::memset(memory.data() + size_t(piece) * kPiece, 1, kPiece); });
  return MachineLimits{.stream_gb_per_s = stream_gb_per_s(pool, memory, kRuns),
                       .dot_gmacs_per_s = peak_gmacs_per_s(pool, kernels.dot_peak, kRuns),
                       .fma_gmacs_per_s = peak_gmacs_per_s(pool, kernels.fma_peak, kRuns)};
}

MachineLimits median_limits(std::span<const MachineLimits> measured) {
  MachineLimits median;
  for (const auto figure :
       {&MachineLimits::stream_gb_per_s, &MachineLimits::dot_gmacs_per_s, &MachineLimits::fma_gmacs_per_s}) {
    std::vector<double> values;
    for (const MachineLimits& limits : measured)
      values.push_back(limits.*figure);
    std::nth_element(values.begin(), values.begin() + long(values.size() / 2), values.end());
    median.*figure = values[values.size() / 2];
  }
  return median;
}

}  // namespace invar
