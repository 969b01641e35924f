#pragma once
// Reading the keys that all dense decoder families share, from GGUF metadata or config.json. Whatever changes
// the mathematics and is not supported is refused by name; nothing is guessed.

#include <string>

#include "format/model_source.h"
#include "models/config.h"

namespace invar {

// Defaults of a family's config.json, as Hugging Face's configuration class has them, and what its keys mean.
struct DenseRules {
  double rope_theta = 10000;
  bool tied_head = false;
  int32_t head_dim = 0;   // 0: hidden / heads
  bool bias_keys = true;  // attention_bias and mlp_bias are read
  bool qkv_bias = false;  // where they are not: q, k and v have biases
};

// rotates is all true; windows are left to parse_windows(). Errors name the file and the key.
Result<ModelConfig> parse_dense(const ModelSource& source, const DenseRules& rules);

}  // namespace invar
