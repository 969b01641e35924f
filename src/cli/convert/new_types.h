#pragma once
// Which tensors of a model get another type in a packed model, and which one. The rules are those of GGUF
// files and MLX folders (convert.h, mlx_folder.h), by what the graph says of a tensor. Pure functions.

#include <cstdint>
#include <unordered_map>

#include "cli/convert/block_encoders.h"
#include "cli/convert/mlx_folder.h"
#include "cli/convert/weight_rows.h"
#include "format/model_source.h"
#include "models/load_plan.h"

namespace invar {

inline constexpr int32_t kMlx4Group = MlxOptions{}.group;  // columns per scale

struct QuantizeOptions {
  const BlockEncoder* type = nullptr;  // nullptr: MLX-4
  int threads = 0;                     // 0: every core
};

struct NewType {
  StoredMatrix matrix;     // what is read; transposed: the new tensor is not
  const WeightType* type;  // of MLX-4 with the scales' type
};
using NewTypes = std::unordered_map<const SourceTensor*, NewType>;

// What is not among them stays as it is.
NewTypes new_types(const ModelSource& source, const LoadPlan& plan, const QuantizeOptions& options);

}  // namespace invar
