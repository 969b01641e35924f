#pragma once
// Global factors of NVFP4 matrices in GGUF files: tensors "X.scale" beside "X.weight". Internal to format/.

#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/model_source.h"

namespace invar {

// Matrices of NVFP4 that have factors get them, the tensors of these go, and so do those that say how other
// devices round activations ("X.input_scale").
Result<std::vector<SourceTensor>> join_gguf_factors(std::string_view architecture,
                                                    std::vector<SourceTensor> tensors);

}  // namespace invar
