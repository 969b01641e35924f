// Qwen2-MoE: the attention of Qwen2; beside the chosen experts one that all rows share, behind a gate.

#include <utility>

#include "format/hf_config.h"
#include "models/dense_config.h"
#include "models/dense_recorder.h"
#include "models/experts_config.h"
#include "models/family.h"
#include "models/layer_windows.h"

namespace invar {
namespace {

constexpr ExpertsRules kRules = {.norm_key = "norm_topk_prob",
                                 .renormalize = false,
                                 .gguf_renormalize = false,
                                 .shared_ffn_key = "shared_expert_intermediate_size",
                                 .shared_gate = true,
                                 .sparse_step = true};

}  // namespace

Result<ModelConfig> parse_qwen2_moe(const ModelSource& source) {
  bool bias = true;
  if (source.kind() == SourceKind::kHuggingFace) {
    ASSIGN_OR_RETURN(const auto stored, source.config()->get_bool("qkv_bias"));
    bias = stored.value_or(true);
  }
  ASSIGN_OR_RETURN(ModelConfig c,
                   parse_dense(source, {.bias_keys = false, .qkv_bias = bias, .experts = true}));
  RETURN_IF_ERROR(parse_experts(source, kRules, &c));
  RETURN_IF_ERROR(parse_windows(source, WindowRule::kNone, &c));
  return c;
}

Result<Graph> build_qwen2_moe(const ModelConfig& c) {
  DenseRecorder r(c);
  ValueId x = r.embed();
  for (int32_t l = 0; l < c.layers; ++l) {
    r.begin_layer(l);
    const ValueId h = r.norm("attn_norm", x, "input_layernorm");
    ValueId q = r.linear("attn.q", h, "self_attn.q_proj", r.q_width(), c.hidden, c.qkv_bias, c.heads);
    ValueId k = r.linear("attn.k", h, "self_attn.k_proj", r.kv_width(), c.hidden, c.qkv_bias, c.kv_heads);
    const ValueId v = r.linear("attn.v", h, "self_attn.v_proj", r.kv_width(), c.hidden, c.qkv_bias);
    q = r.rotate("attn.q_rope", q, c.heads);
    k = r.rotate("attn.k_rope", k, c.kv_heads);
    const ValueId a = r.attend("attn", q, k, v);
    const ValueId o = r.linear("attn.o", a, "self_attn.o_proj", c.hidden, r.q_width());
    x = r.add("attn_residual", x, o);

    const ValueId m = r.norm("mlp_norm", x, "post_attention_layernorm");
    x = r.add("mlp_residual", x, r.network(m, kRules.names));
  }
  return std::move(r).finish(x);
}

}  // namespace invar
