// Qwen2 and Qwen2.5: Llama's layers, where q, k and v have biases and nothing else has. Qwen2-MoE: beside the
// chosen experts one that all rows share, behind a gate.

#include "format/hf_config.h"
#include "models/dense_config.h"
#include "models/experts_config.h"
#include "models/family.h"
#include "models/layer_windows.h"

namespace invar {
namespace {

constexpr ExpertsRules kExperts = {.norm_key = "norm_topk_prob",
                                   .renormalize = false,
                                   .gguf_renormalize = false,
                                   .shared_ffn_key = "shared_expert_intermediate_size",
                                   .shared_gate = true,
                                   .sparse_step = true};

}  // namespace

Result<ModelConfig> parse_qwen2(const ModelSource& source) {
  ASSIGN_OR_RETURN(ModelConfig c, parse_dense(source, {.bias_keys = false, .qkv_bias = true}));
  c.qkv_bias = true;
  RETURN_IF_ERROR(parse_windows(source, WindowRule::kUpperLayers, &c));
  return c;
}

Result<ModelConfig> parse_qwen2_moe(const ModelSource& source) {
  bool bias = true;
  if (source.kind() == SourceKind::kHuggingFace) {
    ASSIGN_OR_RETURN(const auto stored, source.config()->get_bool("qkv_bias"));
    bias = stored.value_or(true);
  }
  ASSIGN_OR_RETURN(ModelConfig c,
                   parse_dense(source, {.bias_keys = false, .qkv_bias = bias, .experts = true}));
  RETURN_IF_ERROR(parse_experts(source, kExperts, &c));
  RETURN_IF_ERROR(parse_windows(source, WindowRule::kNone, &c));
  return c;
}

}  // namespace invar
