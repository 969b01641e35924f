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
  int32_t head_dim = 0;                                     // 0: hidden / heads
  int32_t vocab = 0, heads = 0, kv_heads = 0, context = 0;  // 0: the file must say it; kv_heads: heads
  double norm_eps = 0;                                      // 0: the file must say it
  bool bias_keys = true;                                    // attention_bias and mlp_bias are read
  bool qkv_bias = false;                                    // where they are not: q, k and v have biases
  const char* activation = "silu";                          // the one function of the gate
  // Keys that change the mathematics; where a family has no meaning for them they are refused by name.
  bool multipliers = false;   // of embeddings, residuals, scores and logits
  bool softcaps = false;      // of scores and logits
  bool query_scalar = false;  // query_pre_attn_scalar: scores times its root's inverse
  double partial_rotary = 0;  // the default of partial_rotary_factor
  bool longrope = false;
  double window_theta = 0;  // layers with a window rotate without scaling, by this base; -1: by the same
  // The family reads its rope and what differs between layers itself; numbers per layer give their first.
  bool own_layers = false;
  bool experts = false;        // a mixture of experts, read by parse_experts()
  bool unused_layers = false;  // num_nextn_predict_layers
  bool layer_norm = false;     // norm_epsilon and layer_norm_epsilon are the keys
};

// rotates is all true; windows are left to parse_windows(). Errors name the file and the key.
Result<ModelConfig> parse_dense(const ModelSource& source, const DenseRules& rules);

}  // namespace invar
