#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/fp_environment.h"
#include "base/usable_cores.h"

namespace invar {
namespace {

TEST(ThreadPool, EveryTileRunsExactlyOnceInEveryPhase) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool({.threads = threads});
    ASSERT_EQ(pool.threads(), threads);
    std::vector<std::atomic<int>> calls(97);
    for (int phase = 0; phase < 2000; ++phase) {
      const int tiles = phase % 97;
      pool.run(tiles, [&](int64_t tile, int worker) {
        ASSERT_GE(worker, 0);
        ASSERT_LT(worker, threads);
        calls[tile].fetch_add(1, std::memory_order_relaxed);
      });
      for (int i = 0; i < 97; ++i)
        ASSERT_EQ(calls[i].exchange(0), i < tiles ? 1 : 0) << "phase " << phase << " tile " << i;
    }
  }
}

// The results are plain memory: they must be visible to the caller, and what the caller wrote to the workers.
TEST(ThreadPool, RunPublishesPlainWritesBothWays) {
  ThreadPool pool({.threads = 3});
  std::vector<int64_t> in(64), out(64);
  for (int64_t phase = 0; phase < 5000; ++phase) {
    for (auto& x : in)
      x = phase;
    pool.run(64, [&](int64_t tile, int) { out[tile] = in[tile] * 3 + tile; });
    for (int64_t i = 0; i < 64; ++i)
      ASSERT_EQ(out[i], phase * 3 + i);
  }
}

TEST(ThreadPool, WorkersWakeAfterASleep) {
  ThreadPool pool({.threads = 2});
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // far beyond the spin: the worker is asleep
    // The caller's tile waits for the other one, so the phase ends only if the worker comes.
    std::atomic<int> started{0};
    pool.run(2, [&](int64_t, int) {
      ++started;
      while (started.load() < 2)
        std::this_thread::yield();
    });
  }
}

TEST(ThreadPool, APhaseEndsWithoutThreadsThatHaveNoTile) {
  ThreadPool pool({.threads = 2});
  std::atomic<bool> release{false};
  std::atomic<int> inside{0};
  // Worker 1 gets held inside a tile of the first phase ...
  std::thread opener([&] {
    while (inside.load() < 2)
      std::this_thread::yield();
    release = true;
  });
  pool.run(2, [&](int64_t, int) {
    ++inside;
    while (!release.load())
      std::this_thread::yield();
  });
  opener.join();
  // ... and the following phases, which the caller can do alone, do not depend on it.
  int64_t sum = 0;
  for (int i = 0; i < 1000; ++i)
    pool.run(1, [&](int64_t, int worker) { sum += worker == 0; });
  EXPECT_EQ(sum, 1000);
}

TEST(ThreadPool, TilesComputeInTheContractsEnvironmentAndTheCallersComesBack) {
  ThreadPool pool({.threads = 2});
  const uint64_t before = FpEnvironment::read();
#if defined(__x86_64__)
  const uint64_t foreign = 0xFFC0;  // flush to zero, rounding towards zero
#else
  const uint64_t foreign = before;
#endif
  FpEnvironment::write(foreign);
  std::atomic<int> wrong{0}, started{0};
  pool.run(2, [&](int64_t, int) {
    ++started;
    while (started.load() < 2)
      std::this_thread::yield();  // one tile on each thread
    if ((FpEnvironment::read() & ~uint64_t{0x3F}) != (FpEnvironment::kContract & ~uint64_t{0x3F})) ++wrong;
  });
  const uint64_t after = FpEnvironment::read();
  FpEnvironment::write(before);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(after, foreign);
}

TEST(ThreadPool, DefaultUsesTheCoresOfThisProcess) {
  ThreadPool pool;
  EXPECT_EQ(pool.threads(), usable_cores().count);
}

// Hints alone: memory that nobody may read, or that is not there, disturbs no phase.
TEST(ThreadPool, FetchingAheadReadsNothing) {
  constexpr size_t kBytes = size_t{1} << 20;
  void* const forbidden = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(forbidden, MAP_FAILED);
  ThreadPool pool({.threads = 3});
  std::atomic<int64_t> sum{0};
  for (int phase = 0; phase < 200; ++phase) {
    pool.fetch_ahead({forbidden, kBytes},
                     phase % 2 ? AheadRange{} : AheadRange{nullptr, size_t(phase) * 1000});
    pool.run(7, [&](int64_t tile, int) { sum += tile; });
  }
  EXPECT_EQ(sum, 200 * 21);
  munmap(forbidden, kBytes);
}

// More threads than cores must stay sane: no spinner may hold the core that the last tile needs for a time
// slice.
TEST(ThreadPool, CrowdedPoolsDoNotCollapse) {
  const auto time_of = [](int threads) {
    ThreadPool pool({.threads = threads});
    const auto phase = [&] {
      pool.run(32, [](int64_t, int) {
        for (volatile int i = 0; i < 5000; i = i + 1) {
        }
      });
    };
    phase();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 300; ++i)
      phase();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const int cores = usable_cores().count;
  const double fit = time_of(cores), twice = time_of(2 * cores), four_times = time_of(4 * cores);
  std::printf("  300 phases: %.1f ms with a thread per core, %.1f ms with 2, %.1f ms with 4\n", fit * 1e3,
              twice * 1e3, four_times * 1e3);
  EXPECT_LT(twice, 10 * fit + 0.5);
  EXPECT_LT(four_times, 10 * fit + 0.5);
}

}  // namespace
}  // namespace invar
