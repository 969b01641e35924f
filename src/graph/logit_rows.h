#pragma once
// select_rows_early: moves the selection of logit rows as far up as the mathematics allows, so that what only
// feeds logits (in a transformer: all of the last layer after its attention) runs for the rows that want
// logits.

#include "graph/graph.h"

namespace invar {

// The graph must be valid. Weights, ropes and KV groups keep their numbers, values do not.
Graph select_rows_early(const Graph& graph);

}  // namespace invar
