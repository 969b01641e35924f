#pragma once
// What the plan and the kernels rely on about weights; checked once, when a graph is compiled.

#include "base/status.h"
#include "graph/graph.h"
#include "graph/weight_set.h"

namespace invar {

// Every weight is there in its shape. Errors name the weight.
Status check_weights(const Graph& graph, const WeightSet& weights);

}  // namespace invar
