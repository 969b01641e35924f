#pragma once
// CostModel: rough speeds of one thread, for cutting phases into tasks of tens of microseconds. A wrong
// figure costs time only, never a bit: how work is cut does not change results.

#include <cstdint>
#include <string_view>

#include "tensor/packed.h"

namespace invar {

struct CostModel {
  double quantized_macs_per_ns;
  double float_macs_per_ns;
  double attend_macs_per_ns;
  double floats_per_ns;     // norms, activations, quantization
  double bytes_per_ns = 8;  // weights from memory
};

CostModel cost_model(std::string_view isa);

inline constexpr double kTaskNs = 30'000;  // aim: long against a claim, short against a preemption
inline constexpr double kMaxTaskNs = 100'000;
inline constexpr double kSerialNs = 3'000;  // less than this is not worth waking anybody
inline constexpr int kTasksPerThread = 4;   // at least, where the phase is long enough: evens out the finish

// One tile of a matrix, for some rows: its dot products, or its way from memory.
double ns_per_tile(const PackedMatrix& w, int64_t rows, const CostModel& cost);

// How many of `units` equal pieces of `unit_ns` make one task.
int64_t units_per_task(int64_t units, double unit_ns, int threads);

}  // namespace invar
