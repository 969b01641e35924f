#include "base/thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/fp_environment.h"
#include "base/log.h"
#include "base/trace.h"
#include "base/usable_cores.h"

namespace invar {
namespace {

// The ticket: generation of the phase in the upper bits, tiles nobody has claimed yet in the lower ones. A
// claim is one compare-exchange on the whole word, so it succeeds only in the phase it was meant for, and a
// phase with an unfinished claim cannot end. The phase's description is read after the claim, when it can no
// longer change.
constexpr int kLeftBits = 24;
constexpr uint64_t kLeftMask = (uint64_t{1} << kLeftBits) - 1;
constexpr int64_t kMaxTiles = int64_t(kLeftMask);

// Long enough to bridge the gap between two phases of a step, short enough that a shared core loses little. A
// pool with more threads than cores must not spin: the spinner may hold the core that the last tile needs.
constexpr int64_t kSpinNs = 40'000;
constexpr int64_t kCrowdedSpinNs = 1'000;

void pause_cpu() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until done() or until the spin time is over; says which. `meanwhile` does a little work and says
// whether it had any.
template <class Done, class Meanwhile>
bool spin_until(int64_t spin_ns, Done done, Meanwhile meanwhile) {
  if (done()) return true;
  while (meanwhile()) {
    if (done()) return true;
  }
  const int64_t end = now_ns() + spin_ns;
  do {
    for (int i = 0; i < 16; ++i) {
      pause_cpu();
      if (done()) return true;
    }
  } while (now_ns() < end);
  return false;
}

constexpr size_t kLine = 64, kLinesAtOnce = 8;  // between two looks for work

// What fetch_ahead() was told. Ranges of two calls may mix, which costs a few useless lines.
struct Ahead {
  struct Range {
    std::atomic<const char*> data{nullptr};
    std::atomic<size_t> bytes{0};
  };
  std::atomic<uint32_t> calls{0};
  Range ranges[2];
};

// How far one thread is.
class AheadCursor {
 public:
  AheadCursor(int worker, int threads) : worker_(size_t(worker)), threads_(size_t(threads)) {}

  // Some lines of this thread's share; false: it is all there.
  bool step(const Ahead& ahead) {
    const uint32_t call = ahead.calls.load(std::memory_order_relaxed);
    if (call != call_) call_ = call, done_ = 0;
    bool fetched = false;
    for (const Ahead::Range& range : ahead.ranges) {
      const size_t share = range.bytes.load(std::memory_order_relaxed) / threads_;
      if (done_ >= share) continue;
      const char* p = range.data.load(std::memory_order_relaxed) + worker_ * share + done_;
      for (size_t i = 0; i < kLinesAtOnce; ++i)
        __builtin_prefetch(p + i * kLine, 0, 2);
      fetched = true;
    }
    done_ += kLinesAtOnce * kLine;
    return fetched;
  }

 private:
  const size_t worker_, threads_;
  uint32_t call_ = 0;
  size_t done_ = 0;
};

static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word, int threads) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0);
}

}  // namespace

struct ThreadPool::Impl {
  using Tile = FunctionRef<void(int64_t, int)>;

  // Each on its own cache line: claims, completions and sleeping have different writers.
  alignas(64) std::atomic<uint64_t> ticket{0};
  alignas(64) std::atomic<uint32_t> unfinished{0};  // tiles of the current phase; futex of the caller
  std::atomic<uint32_t> caller_sleeps{0};
  alignas(64) std::atomic<uint32_t> wake_count{0};  // futex of idle workers
  std::atomic<uint32_t> sleepers{0};
  std::atomic<bool> stop{false};

  // Description of the phase; written by the caller between phases only.
  alignas(64) const Tile* tile = nullptr;
  int64_t first = 0;  // number of the phase's first tile
  int64_t count = 0;

  alignas(64) Ahead ahead;
  AheadCursor caller_cursor{0, 1};

  int64_t spin_ns = kSpinNs;
  bool running = false;
  int threads = 1;
  std::vector<std::thread> workers;

  // Claims and runs tiles of phase `generation` until none is left.
  void work(uint64_t generation, int worker) {
    Traced span("tiles", SpanKind::kTiles);
    uint32_t finished = 0;
    uint64_t seen = ticket.load(std::memory_order_acquire);
    while (seen >> kLeftBits == generation && (seen & kLeftMask) != 0) {
      if (!ticket.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel, std::memory_order_acquire))
        continue;
      (*tile)(first + count - int64_t(seen & kLeftMask), worker);
      ++finished;
      seen = ticket.load(std::memory_order_acquire);
    }
    if (finished != 0 && unfinished.fetch_sub(finished, std::memory_order_seq_cst) == finished &&
        caller_sleeps.load(std::memory_order_seq_cst) != 0) {
      futex_wake(unfinished, 1);
    }
  }

  void run_phase(int64_t first_tile, int64_t tiles, const Tile& fn) {
    tile = &fn;
    first = first_tile;
    count = tiles;
    unfinished.store(uint32_t(tiles), std::memory_order_relaxed);
    const uint64_t generation = (ticket.load(std::memory_order_relaxed) >> kLeftBits) + 1;
    ticket.store(generation << kLeftBits | uint64_t(tiles), std::memory_order_seq_cst);
    const uint32_t asleep = sleepers.load(std::memory_order_seq_cst);
    if (asleep != 0) {
      wake_count.fetch_add(1, std::memory_order_seq_cst);
      futex_wake(wake_count, int(std::min<int64_t>(asleep, tiles - 1)));
    }
    work(generation & (~uint64_t{0} >> kLeftBits), 0);

    Traced span("wait", SpanKind::kWait);
    const auto ended = [&] { return unfinished.load(std::memory_order_acquire) == 0; };
    if (spin_until(spin_ns, ended, [&] { return caller_cursor.step(ahead); })) return;
    caller_sleeps.store(1, std::memory_order_seq_cst);
    // Any change of the word makes the wait return at once, so the last worker's wake cannot be missed.
    for (uint32_t left; (left = unfinished.load(std::memory_order_seq_cst)) != 0;)
      futex_wait(unfinished, left);
    caller_sleeps.store(0, std::memory_order_relaxed);
  }

  void worker_main(int worker) {
    FpEnvironment::write(FpEnvironment::kContract);
    AheadCursor cursor(worker, threads);
    while (true) {
      const auto has_work = [&] { return (ticket.load(std::memory_order_acquire) & kLeftMask) != 0; };
      const auto stopped = [&] { return stop.load(std::memory_order_acquire); };
      if (!spin_until(spin_ns, [&] { return has_work() || stopped(); }, [&] { return cursor.step(ahead); })) {
        // Registered before the last look, and the caller publishes before it counts sleepers: one of us sees
        // the other.
        sleepers.fetch_add(1, std::memory_order_seq_cst);
        const uint32_t before = wake_count.load(std::memory_order_seq_cst);
        if ((ticket.load(std::memory_order_seq_cst) & kLeftMask) == 0 &&
            !stop.load(std::memory_order_seq_cst)) {
          futex_wait(wake_count, before);
        }
        sleepers.fetch_sub(1, std::memory_order_seq_cst);
      }
      if (stopped()) return;
      work(ticket.load(std::memory_order_acquire) >> kLeftBits, worker);
    }
  }
};

ThreadPool::ThreadPool(ThreadPoolOptions options) : impl_(std::make_unique<Impl>()) {
  const UsableCores cores = usable_cores();
  impl_->threads = options.threads > 0 ? options.threads : cores.count;
  const int places = cores.limited_by_quota ? cores.count : int(cores.affinity.size());
  if (impl_->threads > places) impl_->spin_ns = kCrowdedSpinNs;
  // A pinned thread cannot move away from a neighbour, so pin only when a core is left for the threads
  // outside the pool.
  const bool pin = impl_->threads < cores.count && !cores.limited_by_quota;
  for (int worker = 1; worker < impl_->threads; ++worker) {
    try {
      impl_->workers.emplace_back([impl = impl_.get(), worker] { impl->worker_main(worker); });
    } catch (const std::system_error& error) {
      // Fewer threads give the same bits.
      log_warning("thread {} of {} cannot start ({}); going on with {}", worker + 1, impl_->threads,
                  error.what(), worker);
      impl_->threads = worker;
      break;
    }
    if (pin) {  // the caller is never pinned
      const int core = cores.affinity[worker];
      if (core < CPU_SETSIZE) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(core, &set);
        pthread_setaffinity_np(impl_->workers.back().native_handle(), sizeof(set),
                               &set);  // a wish; failing is fine
      }
    }
  }
}

ThreadPool::~ThreadPool() {
  impl_->stop.store(true, std::memory_order_seq_cst);
  impl_->wake_count.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(impl_->wake_count, INT_MAX);
  for (std::thread& worker : impl_->workers)
    worker.join();
}

int ThreadPool::threads() const {
  return impl_->threads;
}

void ThreadPool::run(int64_t tiles, FunctionRef<void(int64_t tile, int worker)> fn) {
  CHECK(tiles >= 0);
  CHECK(!impl_->running);  // one phase at a time, never from inside a tile
  impl_->running = true;
  {
    FpEnvironment contract;
    if (tiles == 1 || impl_->threads == 1) {
      Traced span("tiles", SpanKind::kTiles);
      for (int64_t tile = 0; tile < tiles; ++tile)
        fn(tile, 0);
    } else {
      for (int64_t first = 0; first < tiles; first += kMaxTiles) {
        impl_->run_phase(first, std::min(kMaxTiles, tiles - first), fn);
      }
    }
  }
  impl_->running = false;
}

void ThreadPool::fetch_ahead(const AheadRange& first, const AheadRange& second) {
  CHECK(!impl_->running);
  const AheadRange* given[] = {&first, &second};
  for (size_t i = 0; i < 2; ++i) {
    impl_->ahead.ranges[i].data.store(static_cast<const char*>(given[i]->data), std::memory_order_relaxed);
    impl_->ahead.ranges[i].bytes.store(given[i]->bytes, std::memory_order_relaxed);
  }
  impl_->ahead.calls.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace invar
