#pragma once
// Quantized matrices of safetensors folders, which store one matrix as several tensors: MLX (weight, scales,
// biases), GPTQ and AWQ (qweight, qzeros, scales), FP8 (weight, weight_scale_inv), NVFP4 (codes, scales, a
// global factor) and the MXFP4 blocks of gpt-oss. Internal to format/.

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/model_source.h"

namespace invar {

// The tensors of a folder with those of each quantized matrix joined to one of its real shape, under the name
// "...weight". config_text is config.json, which parses. Sizes and shapes are checked against each other;
// tensors that belong to nothing stay as they are.
Result<std::vector<SourceTensor>> join_quantized(std::string_view config_text,
                                                 std::vector<SourceTensor> tensors);

}  // namespace invar
