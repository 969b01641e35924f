#pragma once
// Which weights of a graph choose experts: their results do, so that every conversion leaves them as they
// are. Pure function.

#include <unordered_set>

#include "graph/graph.h"

namespace invar {

// Those of scores, and those of the gate of a shared expert.
std::unordered_set<WeightId> routers(const Graph& graph);

}  // namespace invar
