#pragma once
// Limits and checks shared by the two readers of dense configurations. Internal to models/.

#include <cstdint>
#include <vector>

#include "models/config.h"
#include "models/dense_config.h"

namespace invar {

inline constexpr int64_t kMaxLayers = 1024, kMaxWidth = 1 << 20, kMaxHeads = 4096, kMaxHeadDim = 1024;
inline constexpr int64_t kMaxVocab = 1 << 24, kMaxContext = 1 << 24;  // positions are exact in fp32

// *out = value, if 1 <= value <= most.
Status check_size(const char* key, int64_t value, int64_t most, int32_t* out);

// *out = value, if it is positive and of a reasonable size.
Status check_factor(const char* key, double value, float* out);

// Heads, head dimension and epsilon agree with each other.
Status check_shape(const ModelConfig& config);

// A side tensor [dim/2] of factors for the rotary frequencies in a GGUF file; empty if there is none.
// `config` is told of one that is there.
Result<std::vector<float>> frequency_factors(const ModelSource& source, const char* name, int32_t dim,
                                             ModelConfig* config);

Result<ModelConfig> parse_hf_dense(const ModelSource& source, const DenseRules& rules);
Result<ModelConfig> parse_gguf_dense(const ModelSource& source, const DenseRules& rules);

}  // namespace invar
