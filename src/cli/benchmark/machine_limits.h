#pragma once
// What this machine can do at most, measured: the figures that a kernel is compared with. Main thread, on an
// idle pool.

#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "tensor/buffer.h"

namespace invar {

// GB/s of reading all of `memory`, which no cache should hold, with all threads: the median of several runs.
double stream_gb_per_s(ThreadPool& pool, const Buffer& memory);
// 10^9 multiply-adds per second on registers, with all threads: one of dot_peak and fma_peak.
double peak_gmacs_per_s(ThreadPool& pool, int64_t (*peak)(int64_t rounds));

}  // namespace invar
