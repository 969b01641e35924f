#pragma once
// Reading the keys of a mixture of experts, from GGUF metadata or config.json. Called after parse_dense();
// what would change the mathematics and is not supported is refused by its key.

#include "format/model_source.h"
#include "models/config.h"

namespace invar {

// What a family's keys are and mean. nullptr: it has no such key.
struct ExpertsRules {
  const char* count_key = "num_experts";          // of config.json, as are all keys here
  const char* ffn_key = "moe_intermediate_size";  // width of an expert
  const char* chosen_key = "num_experts_per_tok";
  Routing routing = Routing::kSoftmax;
  const char* norm_key = nullptr;  // whether weights are renormalized ...
  bool renormalize = true;         // ... and what is so without the key
  bool gguf_renormalize = true;    // the same of GGUF files
  float sum_floor = 0;
  const char* shared_ffn_key = nullptr;    // width of the shared expert ...
  const char* shared_count_key = nullptr;  // ... or how many widths of an expert it has
  bool shared_gate = false;
  bool correction = false;
  bool biases = false;
  const char* scale_key = nullptr;  // a factor of all weights
  const char* dense_key = nullptr;  // so many layers at the beginning are dense
  bool sparse_step = false;         // decoder_sparse_step and mlp_only_layers
  ExpertNames names = {};
};

// Fills config->experts of a file that has experts; who may have none looks first.
Status parse_experts(const ModelSource& source, const ExpertsRules& rules, ModelConfig* config);

}  // namespace invar
