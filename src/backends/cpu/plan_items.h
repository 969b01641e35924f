#pragma once
// The first half of planning: what there is to run (items), which buffers it touches, and how deep it lies
// behind other work (levels). Items of a level are independent of each other, but for row ops, which run in
// their order.

#include <vector>

#include "backends/cpu/fusion.h"
#include "backends/cpu/plan.h"

namespace invar {

// Work that lands in a phase: nodes, and what the backend adds to them.
struct PlanItem {
  enum class Type : uint8_t { kRow, kLinear, kAttend, kExperts };
  Type type;
  RowOp::Kind row_op{};  // kRow
  Rows rows;
  int32_t node = kNone;              // the node whose attributes it takes; kRopeTable: the number of the rope
  ValueId value = kNone;             // kLinear: the shared input; kQuantize, kCheckFinite: what it reads
  const int32_t* columns = nullptr;  // kQuantize: the order in which it reads them; nullptr: as they are
  int32_t level = 0;  // reads only what lower levels wrote; row ops also what earlier ones of the level wrote
  int32_t phase = kNone;
  std::vector<int32_t> reads, writes;  // buffers
};

// A value whose elements are quantized in the order of gathered matrices' columns.
struct GatheredValue {
  ValueId value;
  const int32_t* columns;  // of the first such matrix; others have equal ones
  int32_t level;           // of its item
};

// Buffers are numbered: fp32 rows [values], quantized rows [values], rope tables [ropes], scratch of experts
// [sets], quantized rows of gathered values [gathered].
struct PlanItems {
  std::vector<PlanItem> items;
  std::vector<GatheredValue> gathered;
  std::vector<int32_t> value_buffer;  // [values]: the fp32 buffer; results made in place share one
  Fusions fusions;
};
inline int32_t quantized_buffer(const Graph& graph, ValueId v) {
  return int32_t(graph.values.size()) + v;
}
inline int32_t rope_buffer(const Graph& graph, int32_t rope) {
  return int32_t(2 * graph.values.size()) + rope;
}
inline int32_t experts_buffer(const Graph& graph, int32_t set) {
  return int32_t(2 * graph.values.size() + graph.ropes.size()) + set;
}

inline int32_t gathered_buffer(const Graph& graph, int32_t gathered) {
  return int32_t(2 * graph.values.size() + graph.ropes.size() + graph.expert_sets.size()) + gathered;
}
// The gathered value that a matrix reads v as; kNone: no such.
int32_t find_gathered(const std::vector<GatheredValue>& all, ValueId v, const PackedMatrix& matrix);

// What the matrices of a set read. Those of a gathered form quantize fp32 rows themselves.
struct ExpertForms {
  bool float_in = false, quantized_in = false, quantized_down = false;
};
ExpertForms expert_forms(const std::vector<ExpertWeights>& set, const WeightSet& weights);

PlanItems make_plan_items(const Graph& graph, const WeightSet& weights);

}  // namespace invar
