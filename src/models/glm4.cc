// GLM-4: norms before and after each block, adjacent pairs of half of every head rotate, gate and up are one
// matrix in the file.

#include <utility>

#include "models/dense_config.h"
#include "models/dense_recorder.h"
#include "models/family.h"
#include "models/layer_windows.h"

namespace invar {

Result<ModelConfig> parse_glm4(const ModelSource& source) {
  ASSIGN_OR_RETURN(ModelConfig c, parse_dense(source, {.head_dim = 128, .partial_rotary = 0.5}));
  c.rope.adjacent = true;
  RETURN_IF_ERROR(parse_windows(source, WindowRule::kNone, &c));
  return c;
}

Result<Graph> build_glm4(const ModelConfig& c) {
  DenseRecorder r(c);
  ValueId x = r.embed();
  for (int32_t l = 0; l < c.layers; ++l) {
    r.begin_layer(l);
    const ValueId h = r.norm("attn_norm", x, "input_layernorm");
    ValueId q = r.linear("attn.q", h, "self_attn.q_proj", r.q_width(), c.hidden, c.qkv_bias);
    ValueId k = r.linear("attn.k", h, "self_attn.k_proj", r.kv_width(), c.hidden, c.qkv_bias);
    const ValueId v = r.linear("attn.v", h, "self_attn.v_proj", r.kv_width(), c.hidden, c.qkv_bias);
    q = r.rotate("attn.q_rope", q, c.heads);
    k = r.rotate("attn.k_rope", k, c.kv_heads);
    const ValueId a = r.attend("attn", q, k, v);
    const ValueId o = r.linear("attn.o", a, "self_attn.o_proj", c.hidden, r.q_width());
    x = r.add("attn_residual", x, r.norm("attn_post_norm", o, "post_self_attn_layernorm"));

    const ValueId m = r.norm("mlp_norm", x, "post_attention_layernorm");
    const ValueId gate = r.linear_part("mlp.gate", m, "mlp.gate_up_proj", 0, c.ffn, 2 * c.ffn);
    const ValueId up = r.linear_part("mlp.up", m, "mlp.gate_up_proj", c.ffn, c.ffn, 2 * c.ffn);
    const ValueId y = r.gated_silu("mlp.act", gate, up);
    const ValueId down = r.linear("mlp.down", y, "mlp.down_proj", c.hidden, c.ffn);
    x = r.add("mlp_residual", x, r.norm("mlp_post_norm", down, "post_mlp_layernorm"));
  }
  return std::move(r).finish(x);
}

}  // namespace invar
