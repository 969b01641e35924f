#include "backends/cpu/check_weights.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace invar {
namespace {

Status check_columns(const std::string& name, const PackedMatrix& m) {
  for (int64_t k = 0; m.form->gathered && k < m.cols; k++)
    if (const int32_t column = m.columns()[k]; column < 0 || column >= m.cols)
      return corrupt(fmt::format("weight '{}': column {} of {} is packed", name, column, m.cols));
  return {};
}

// Gate and up of an expert meet the same quantized row.
Status check_expert(const std::string& name, const PackedMatrix& gate, const PackedMatrix& up) {
  const bool both = gate.form->gathered && up.form->gathered;
  if (both ? std::memcmp(gate.columns(), up.columns(), size_t(gate.cols) * 4) == 0
           : gate.form->gathered == up.form->gathered || is_float(*gate.form) || is_float(*up.form))
    return {};
  return unsupported(
      fmt::format("weight '{}' has another order of columns (g_idx) than its expert's second half", name));
}

}  // namespace

Status check_weights(const Graph& graph, const WeightSet& weights) {
  if (weights.matrices.size() != graph.weights.size() || weights.vectors.size() != graph.weights.size()) {
    return internal_error(fmt::format("the weight set has {} matrices and {} vectors for {} weights",
                                      weights.matrices.size(), weights.vectors.size(), graph.weights.size()));
  }
  for (size_t i = 0; i < graph.weights.size(); i++) {
    const Weight& want = graph.weights[i];
    if (want.kind == Weight::Kind::kVector) {
      const size_t have = weights.vectors[i].size();
      if (have == size_t(want.rows)) continue;
      return invalid_argument(
          fmt::format("weight '{}' has {} elements, needs {}", want.name, have, want.rows));
    }
    const PackedMatrix& have = weights.matrices[i];
    if (have.data == nullptr || have.form == nullptr) {
      return not_found(fmt::format("weight '{}' is missing", want.name));
    }
    if (have.rows != want.rows || have.cols != want.cols) {
      return invalid_argument(fmt::format("weight '{}' is [{}, {}], needs [{}, {}]", want.name, have.rows,
                                          have.cols, want.rows, want.cols));
    }
    if (!is_float(*have.form) && have.cols % 32 != 0) {
      return unsupported(fmt::format("weight '{}' is quantized ({}) with {} columns, needs a multiple of 32",
                                     want.name, have.form->name, have.cols));
    }
    CHECK(reinterpret_cast<uintptr_t>(have.data) % 64 == 0);
    RETURN_IF_ERROR(check_columns(want.name, have));
  }
  for (const auto& set : graph.expert_sets)
    for (const ExpertWeights& e : set)
      RETURN_IF_ERROR(check_expert(graph.weights[size_t(e.gate)].name, weights.matrices[size_t(e.gate)],
                                   weights.matrices[size_t(e.up)]));
  for (const Node& node : graph.nodes) {
    if (node.op != Op::kAttend || node.weight == kNone) continue;
    for (const float sink : weights.vectors[size_t(node.weight)])
      if (!std::isfinite(sink))
        return corrupt(fmt::format("weight '{}' holds {}", graph.weights[size_t(node.weight)].name, sink));
  }
  return {};
}

}  // namespace invar
