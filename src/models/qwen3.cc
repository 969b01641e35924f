// Qwen3: every head of q and k is normalized before it rotates. Qwen3-MoE: most layers have experts, whose
// weights sum to 1 where the file says so.

#include <utility>

#include "models/dense_config.h"
#include "models/dense_recorder.h"
#include "models/experts_config.h"
#include "models/family.h"
#include "models/layer_windows.h"

namespace invar {

Result<ModelConfig> parse_qwen3(const ModelSource& source) {
  ASSIGN_OR_RETURN(ModelConfig c, parse_dense(source, {.head_dim = 128}));
  RETURN_IF_ERROR(parse_windows(source, WindowRule::kUpperLayers, &c));
  return c;
}

Result<ModelConfig> parse_qwen3_moe(const ModelSource& source) {
  constexpr ExpertsRules kRules = {.norm_key = "norm_topk_prob", .renormalize = false, .sparse_step = true};
  ASSIGN_OR_RETURN(ModelConfig c, parse_dense(source, {.experts = true}));
  RETURN_IF_ERROR(parse_experts(source, kRules, &c));
  RETURN_IF_ERROR(parse_windows(source, WindowRule::kNone, &c));
  return c;
}

Result<Graph> build_qwen3(const ModelConfig& c) {
  DenseRecorder r(c);
  ValueId x = r.embed();
  for (int32_t l = 0; l < c.layers; ++l) {
    r.begin_layer(l);
    const ValueId h = r.norm("attn_norm", x, "input_layernorm");
    ValueId q = r.linear("attn.q", h, "self_attn.q_proj", r.q_width(), c.hidden, c.qkv_bias, c.heads);
    ValueId k = r.linear("attn.k", h, "self_attn.k_proj", r.kv_width(), c.hidden, c.qkv_bias, c.kv_heads);
    const ValueId v = r.linear("attn.v", h, "self_attn.v_proj", r.kv_width(), c.hidden, c.qkv_bias);
    q = r.head_norm("attn.q_norm", q, "self_attn.q_norm");
    k = r.head_norm("attn.k_norm", k, "self_attn.k_norm");
    q = r.rotate("attn.q_rope", q, c.heads);
    k = r.rotate("attn.k_rope", k, c.kv_heads);
    const ValueId a = r.attend("attn", q, k, v);
    const ValueId o = r.linear("attn.o", a, "self_attn.o_proj", c.hidden, r.q_width(), c.output_bias);
    x = r.add("attn_residual", x, o);

    const ValueId m = r.norm("mlp_norm", x, "post_attention_layernorm");
    x = r.add("mlp_residual", x, r.network(m));
  }
  return std::move(r).finish(x);
}

}  // namespace invar
