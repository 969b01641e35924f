// Phi-3 and Phi-4-mini: q, k and v are one matrix in the file, gate and up another.

#include <utility>

#include "models/dense_config.h"
#include "models/dense_recorder.h"
#include "models/family.h"
#include "models/layer_windows.h"

namespace invar {

Result<ModelConfig> parse_phi3(const ModelSource& source) {
  ASSIGN_OR_RETURN(ModelConfig c,
                   parse_dense(source, {.bias_keys = false, .partial_rotary = 1, .longrope = true}));
  RETURN_IF_ERROR(parse_windows(source, WindowRule::kAllLayers, &c));
  return c;
}

Result<Graph> build_phi3(const ModelConfig& c) {
  DenseRecorder r(c);
  const int64_t qkv = r.q_width() + 2 * r.kv_width(), v_row = r.q_width() + r.kv_width();
  ValueId x = r.embed();
  for (int32_t l = 0; l < c.layers; ++l) {
    r.begin_layer(l);
    const ValueId h = r.norm("attn_norm", x, "input_layernorm");
    ValueId q = r.linear_part("attn.q", h, "self_attn.qkv_proj", 0, r.q_width(), qkv);
    ValueId k = r.linear_part("attn.k", h, "self_attn.qkv_proj", r.q_width(), r.kv_width(), qkv);
    const ValueId v = r.linear_part("attn.v", h, "self_attn.qkv_proj", v_row, r.kv_width(), qkv);
    q = r.rotate("attn.q_rope", q, c.heads);
    k = r.rotate("attn.k_rope", k, c.kv_heads);
    const ValueId a = r.attend("attn", q, k, v);
    const ValueId o = r.linear("attn.o", a, "self_attn.o_proj", c.hidden, r.q_width());
    x = r.add("attn_residual", x, o);

    const ValueId m = r.norm("mlp_norm", x, "post_attention_layernorm");
    const ValueId gate = r.linear_part("mlp.gate", m, "mlp.gate_up_proj", 0, c.ffn, 2 * c.ffn);
    const ValueId up = r.linear_part("mlp.up", m, "mlp.gate_up_proj", c.ffn, c.ffn, 2 * c.ffn);
    const ValueId y = r.gated_silu("mlp.act", gate, up);
    const ValueId down = r.linear("mlp.down", y, "mlp.down_proj", c.hidden, c.ffn);
    x = r.add("mlp_residual", x, down);
  }
  return std::move(r).finish(x);
}

}  // namespace invar
