#pragma once
// A model in a folder of float weights as a folder in MLX's layout: matrices in affine codes of 4 bits,
// those of experts stacked, everything else as it is, routers too, and the tokenizer's files along. Errors
// name tensor and file. Uses all threads it is given.

#include <string>

#include "base/status.h"
#include "cli/convert/convert.h"
#include "format/model_source.h"

namespace invar {

struct MlxOptions {
  int32_t group = 64;  // columns per scale: 32, 64, 128
  int threads = 0;     // 0: every core
  Existing existing = Existing::kReplaced;
};

// `folder` is made if it is not there; with kKept it must not be there. config.json comes last: without it, a
// folder is no model.
Result<Conversion> convert_to_mlx(const ModelSource& source, const std::string& folder,
                                  const MlxOptions& options);

}  // namespace invar
