#pragma once
// What this machine can do at most, measured: the figures that a kernel is compared with. Main thread, on an
// idle pool.

#include <span>

#include "base/status.h"
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "tensor/buffer.h"

namespace invar {

struct MachineLimits {
  double stream_gb_per_s = 0;  // reads from memory
  double dot_gmacs_per_s = 0;  // 10^9 multiply-adds of integers per second on registers
  double fma_gmacs_per_s = 0;  // of floats
};

// Takes 256 MiB meanwhile.
Result<MachineLimits> measure_limits(ThreadPool& pool, const KernelTable& kernels);
// Of each the median: memory is shared with whoever else runs on the machine, so that the figure of one
// moment says little. Not empty.
MachineLimits median_limits(std::span<const MachineLimits> measured);

// Of all threads together, medians of `runs`.
double stream_gb_per_s(ThreadPool& pool, const Buffer& memory, int runs);  // no cache should hold all of it
double peak_gmacs_per_s(ThreadPool& pool, int64_t (*peak)(int64_t rounds), int runs);  // dot_peak, fma_peak

}  // namespace invar
