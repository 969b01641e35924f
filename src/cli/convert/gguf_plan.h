#pragma once
// GgufPlan: what a GGUF file of a model in a folder holds. The family records the model twice, as its folder
// has it and as its GGUF file would; weight i of one graph is weight i of the other, which says where each
// row of the file comes from. Borrows the source. Made by one thread, then read-only.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/model_source.h"
#include "graph/graph.h"
#include "models/audit.h"
#include "models/config.h"
#include "models/family.h"

namespace invar {

struct PlannedPiece {
  int32_t weight;     // of both graphs
  int64_t first_row;  // in the tensor, whose rows are those of all its experts
};

struct PlannedTensor {
  std::string name;  // as GGUF has it
  std::vector<int64_t> shape;
  const WeightType* natural;  // holds it without loss
  bool is_vector;             // written as F32
  std::vector<PlannedPiece> pieces;
};

// A small tensor that the configuration gives: what a rope is divided by.
struct PlannedFactors {
  std::string name;
  std::vector<float> values;
};

struct GgufPlan {
  const Family* family;  // the one that reads GGUF files
  ModelConfig config;    // as such a file has it
  Graph from, to;
  Audit audit;  // source tensor of each weight
  std::vector<PlannedTensor> tensors;
  std::vector<PlannedFactors> factors;

  // Elements of a weight's row `row` of the file as f32.
  void read_row(int32_t weight, int64_t row, float* out) const;
  // The row of the source's weight that is row `row` of the file's.
  int64_t channel(int32_t weight, int64_t row) const;
};

// The shape of the tensor that GGUF keeps a weight in.
std::vector<int64_t> gguf_shape(const Weight& weight);

// Refuses what GGUF has no name for.
Result<GgufPlan> plan_gguf(const ModelSource& source);

}  // namespace invar
