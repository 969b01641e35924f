// GLM-4.5: half of every head rotates, q and k are normalized per head in the large size, and from some layer
// on there are experts, chosen by corrected sigmoids, beside one that all rows share. Layers behind the last
// (multi-token prediction) are left out.

#include <utility>

#include "models/dense_config.h"
#include "models/dense_recorder.h"
#include "models/experts_config.h"
#include "models/family.h"
#include "models/layer_windows.h"

namespace invar {

namespace {

constexpr ExpertsRules kRules = {.count_key = "n_routed_experts",
                                 .routing = Routing::kSigmoid,
                                 .norm_key = "norm_topk_prob",
                                 .sum_floor = 1e-20f,
                                 .shared_count_key = "n_shared_experts",
                                 .correction = true,
                                 .scale_key = "routed_scaling_factor",
                                 .dense_key = "first_k_dense_replace",
                                 .names = {.shared = "mlp.shared_experts"}};

}  // namespace

Result<ModelConfig> parse_glm4_moe(const ModelSource& source) {
  ASSIGN_OR_RETURN(
      ModelConfig c,
      parse_dense(source, {.head_dim = 128, .partial_rotary = 0.5, .experts = true, .unused_layers = true}));
  c.head_norms = source.find("model.layers.0.self_attn.q_norm.weight") != nullptr;
  RETURN_IF_ERROR(parse_experts(source, kRules, &c));
  RETURN_IF_ERROR(parse_windows(source, WindowRule::kNone, &c));
  return c;
}

Result<Graph> build_glm4_moe(const ModelConfig& c) {
  DenseRecorder r(c);
  ValueId x = r.embed();
  for (int32_t l = 0; l < c.layers; ++l) {
    r.begin_layer(l);
    const ValueId h = r.norm("attn_norm", x, "input_layernorm");
    ValueId q = r.linear("attn.q", h, "self_attn.q_proj", r.q_width(), c.hidden, c.qkv_bias, c.heads);
    ValueId k = r.linear("attn.k", h, "self_attn.k_proj", r.kv_width(), c.hidden, c.qkv_bias, c.kv_heads);
    const ValueId v = r.linear("attn.v", h, "self_attn.v_proj", r.kv_width(), c.hidden, c.qkv_bias);
    if (c.head_norms) {
      q = r.head_norm("attn.q_norm", q, "self_attn.q_norm");
      k = r.head_norm("attn.k_norm", k, "self_attn.k_norm");
    }
    q = r.rotate("attn.q_rope", q, c.heads);
    k = r.rotate("attn.k_rope", k, c.kv_heads);
    const ValueId a = r.attend("attn", q, k, v);
    const ValueId o = r.linear("attn.o", a, "self_attn.o_proj", c.hidden, r.q_width());
    x = r.add("attn_residual", x, o);

    const ValueId m = r.norm("mlp_norm", x, "post_attention_layernorm");
    x = r.add("mlp_residual", x, r.network(m));
  }
  return std::move(r).finish(x);
}

}  // namespace invar
