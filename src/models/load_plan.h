#pragma once
// LoadPlan: what a model file becomes, before anything is packed: its family, configuration and graph, and
// where each packed tensor comes from. Borrows the source. A plain value.

#include <vector>

#include "base/status.h"
#include "format/model_source.h"
#include "format/packed_weights.h"
#include "graph/graph.h"
#include "models/audit.h"
#include "models/config.h"
#include "models/family.h"
#include "models/rope_override.h"

namespace invar {

struct LoadPlan {
  const Family* family = nullptr;
  ModelConfig config;
  Graph graph;
  Audit audit;
  std::vector<PackedEntry> entries;  // [weights of the graph]
};

Result<LoadPlan> plan_load(const ModelSource& source, const RopeOverride& rope = {});

}  // namespace invar
