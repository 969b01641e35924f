#pragma once
// graph_text: a graph as text, one line per node, for debugging and `invar inspect`.

#include <string>

#include "graph/graph.h"

namespace invar {

std::string graph_text(const Graph& graph);

}  // namespace invar
