#pragma once
// Which nodes of a graph run together: patterns of the graph, never of a family.

#include <vector>

#include "graph/graph.h"

namespace invar {

struct Fusions {
  // [nodes]: the later node that computes this one's result along with its own, or kNone. The linear nodes
  // under a gated unit belong to the gated node; a linear node whose only reader is a residual add
  // belongs to the add where nobody needs the old residual afterwards, so that it can be added in place.
  std::vector<int32_t> into;
  std::vector<ValueId> residual;              // [nodes]: what such an add accumulates onto, else kNone
  std::vector<int32_t> producer;              // [values]: node
  std::vector<std::vector<int32_t>> readers;  // [values]: nodes, ascending

  // The node at whose place node i is computed.
  int32_t place(int32_t i) const { return into[i] == kNone ? i : into[i]; }
};

// The graph must be valid.
Fusions find_fusions(const Graph& graph);

}  // namespace invar
