// Qwen2 and Qwen2.5: q, k and v have biases, nothing else has.

#include <utility>

#include "models/dense_config.h"
#include "models/dense_recorder.h"
#include "models/family.h"
#include "models/layer_windows.h"

namespace invar {

Result<ModelConfig> parse_qwen2(const ModelSource& source) {
  ASSIGN_OR_RETURN(ModelConfig c, parse_dense(source, {.bias_keys = false, .qkv_bias = true}));
  RETURN_IF_ERROR(parse_windows(source, WindowRule::kUpperLayers, &c));
  return c;
}

Result<Graph> build_qwen2(const ModelConfig& c) {
  DenseRecorder r(c);
  ValueId x = r.embed();
  for (int32_t l = 0; l < c.layers; ++l) {
    r.begin_layer(l);
    const ValueId h = r.norm("attn_norm", x, "input_layernorm");
    ValueId q = r.linear("attn.q", h, "self_attn.q_proj", r.q_width(), c.hidden, true, c.heads);
    ValueId k = r.linear("attn.k", h, "self_attn.k_proj", r.kv_width(), c.hidden, true, c.kv_heads);
    const ValueId v = r.linear("attn.v", h, "self_attn.v_proj", r.kv_width(), c.hidden, true);
    q = r.rotate("attn.q_rope", q, c.heads);
    k = r.rotate("attn.k_rope", k, c.kv_heads);
    const ValueId a = r.attend("attn", q, k, v);
    const ValueId o = r.linear("attn.o", a, "self_attn.o_proj", c.hidden, r.q_width());
    x = r.add("attn_residual", x, o);

    const ValueId m = r.norm("mlp_norm", x, "post_attention_layernorm");
    const ValueId gate = r.linear("mlp.gate", m, "mlp.gate_proj", c.ffn, c.hidden);
    const ValueId up = r.linear("mlp.up", m, "mlp.up_proj", c.ffn, c.hidden);
    const ValueId y = r.gated_silu("mlp.act", gate, up);
    const ValueId down = r.linear("mlp.down", y, "mlp.down_proj", c.hidden, c.ffn);
    x = r.add("mlp_residual", x, down);
  }
  return std::move(r).finish(x);
}

}  // namespace invar
