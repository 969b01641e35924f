#pragma once
// The strict audit of a model file: every weight of the graph has its tensor, of the right shape and a
// supported type, and every tensor of the file is used or on the list of those that may be dropped.

#include <string>
#include <vector>

#include "format/model_source.h"
#include "graph/graph.h"
#include "models/config.h"

namespace invar {

struct Audit {
  std::vector<const SourceTensor*> tensors;  // [weights of the graph]
  std::vector<std::string> dropped;          // stored names of tensors that are not needed
  std::vector<std::string> folded;           // consumed while the configuration was read
};

Result<Audit> audit_tensors(const ModelSource& source, const ModelConfig& config, const Graph& graph);

}  // namespace invar
