// Llama 2 and 3, SmolLM2, TinyLlama; Mistral, whose every layer may have a window. Granite and MiniCPM have
// these layers, too, with what a block gives scaled; where that factor is 1, nothing is recorded for it.

#include <utility>

#include "models/dense_config.h"
#include "models/dense_recorder.h"
#include "models/family.h"
#include "models/layer_windows.h"

namespace invar {

Result<ModelConfig> parse_llama(const ModelSource& source) {
  ASSIGN_OR_RETURN(ModelConfig c, parse_dense(source, {}));
  RETURN_IF_ERROR(parse_windows(source, WindowRule::kNone, &c));
  return c;
}

Result<ModelConfig> parse_mistral(const ModelSource& source) {
  ASSIGN_OR_RETURN(ModelConfig c, parse_dense(source, {.bias_keys = false}));
  RETURN_IF_ERROR(parse_windows(source, WindowRule::kAllLayers, &c));
  return c;
}

Result<Graph> build_llama(const ModelConfig& c) {
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
    const ValueId o = r.linear("attn.o", a, "self_attn.o_proj", c.hidden, r.q_width(), c.output_bias);
    x = r.add("attn_residual", x, r.scale("attn.o_scale", o, c.residual_multiplier));

    const ValueId m = r.norm("mlp_norm", x, "post_attention_layernorm");
    const ValueId gate = r.linear("mlp.gate", m, "mlp.gate_proj", c.ffn, c.hidden, c.mlp_bias);
    const ValueId up = r.linear("mlp.up", m, "mlp.up_proj", c.ffn, c.hidden, c.mlp_bias);
    const ValueId y = r.gated_silu("mlp.act", gate, up);
    const ValueId down = r.linear("mlp.down", y, "mlp.down_proj", c.hidden, c.ffn, c.mlp_bias);
    x = r.add("mlp_residual", x, r.scale("mlp.down_scale", down, c.residual_multiplier));
  }
  return std::move(r).finish(x);
}

}  // namespace invar
