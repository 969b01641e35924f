#include "backends/cpu/cost_model.h"

#include <algorithm>

namespace invar {

CostModel cost_model(std::string_view isa) {
  if (isa == "avx512") return {200, 30, 40, 2.5};
  if (isa == "avx2") return {80, 12, 16, 1.5};
  if (isa == "scalar-portable") return {2, 0.1, 0.1, 0.2};
  return {6, 2, 2, 0.5};
}

double ns_per_tile(const PackedMatrix& w, int64_t rows, const CostModel& cost) {
  const double macs = double(rows) * kTileRows * double(w.cols);
  const double compute = macs / (is_float(*w.form) ? cost.float_macs_per_ns : cost.quantized_macs_per_ns);
  return std::max(compute, double(w.tile_size()) / cost.bytes_per_ns);
}

int64_t units_per_task(int64_t units, double unit_ns, int threads) {
  if (threads == 1 && double(units) * unit_ns <= kMaxTaskNs) return units;
  if (double(units) * unit_ns <= kSerialNs) return units;
  const int64_t by_time = int64_t(kTaskNs / unit_ns);
  const int64_t by_balance = (units + kTasksPerThread * threads - 1) / (kTasksPerThread * threads);
  return std::clamp<int64_t>(std::min(by_time, by_balance), 1, units);
}

}  // namespace invar
