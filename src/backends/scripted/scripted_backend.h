#pragma once
// Scripted backend: runs no model. Every token is equally likely, so a request's guard alone decides what is
// said, on the way that every token takes. For a server whose answers come from a file.

#include <cstdint>
#include <memory>

#include "backends/backend.h"
#include "graph/graph.h"
#include "graph/weight_set.h"

namespace invar {

// What an engine over this backend serves: a vocabulary, and a KV group so small that pages cost nothing.
struct ScriptedModel {
  Graph graph;
  WeightSet weights;
};
std::shared_ptr<const ScriptedModel> make_scripted_model(int32_t vocab);

std::unique_ptr<Backend> make_scripted_backend();

}  // namespace invar
