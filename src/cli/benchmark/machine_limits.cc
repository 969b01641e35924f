#include "cli/benchmark/machine_limits.h"

#include <algorithm>
#include <atomic>
#include <cstring>

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

Status measure_limits(ThreadPool& pool, const KernelTable& kernels, MachineLimits* limits) {
  ASSIGN_OR_RETURN(Buffer memory, Buffer::allocate(kStreamed));
  // Untouched, all of it would be one page of zeros; touched by those who read it, it lies near them.
  pool.run(int64_t(kStreamed / kPiece),
           [&](int64_t piece, int) { std::memset(memory.data() + size_t(piece) * kPiece, 1, kPiece); });
  const auto keep = [](double measured, double* most) { *most = std::max(*most, measured); };
  keep(stream_gb_per_s(pool, memory, kRuns), &limits->stream_gb_per_s);
  keep(peak_gmacs_per_s(pool, kernels.dot_peak, kRuns), &limits->dot_gmacs_per_s);
  keep(peak_gmacs_per_s(pool, kernels.fma_peak, kRuns), &limits->fma_gmacs_per_s);
  return {};
}

}  // namespace invar
