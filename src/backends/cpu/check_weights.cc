#include "backends/cpu/check_weights.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

namespace invar {

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
  }
  for (const Node& node : graph.nodes) {
    if (node.op != Op::kAttend || node.weight == kNone) continue;
    for (const float sink : weights.vectors[size_t(node.weight)])
      if (!std::isfinite(sink))
        return corrupt(fmt::format("weight '{}' holds {}", graph.weights[size_t(node.weight)].name, sink));
  }
  return {};
}

}  // namespace invar
