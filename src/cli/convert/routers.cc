#include "cli/convert/routers.h"

namespace invar {

std::unordered_set<WeightId> routers(const Graph& graph) {
  std::unordered_set<ValueId> choosing;
  for (const Node& n : graph.nodes)
    if (n.op == Op::kExperts)
      for (size_t i = 1; i < n.in.size(); i += 2)  // scores, and the gate of the shared expert
        choosing.insert(n.in[i]);
  std::unordered_set<WeightId> found;
  for (const Node& n : graph.nodes)
    if (n.op == Op::kLinear && choosing.contains(n.out)) found.insert(n.weight);
  return found;
}

}  // namespace invar
