// Gemma 3 (text): every head of q and k is normalized, five of six layers have a window and a rope of their
// own.

#include <utility>

#include "models/dense_config.h"
#include "models/dense_recorder.h"
#include "models/family.h"
#include "models/gemma.h"
#include "models/layer_windows.h"

namespace invar {

Result<ModelConfig> parse_gemma3(const ModelSource& source) {
  ASSIGN_OR_RETURN(ModelConfig c, parse_dense(source, {.rope_theta = 1e6,
                                                       .tied_head = true,
                                                       .head_dim = 256,
                                                       .vocab = 262208,
                                                       .heads = 8,
                                                       .kv_heads = 4,
                                                       .context = 131072,
                                                       .norm_eps = 1e-6,
                                                       .activation = "gelu_pytorch_tanh",
                                                       .softcaps = true,
                                                       .query_scalar = true,
                                                       .window_theta = 10000}));
  set_gemma(source, &c, 62);  // 27B
  RETURN_IF_ERROR(parse_windows(source, WindowRule::kPattern, &c, {.interval = 6, .size = 4096}));
  return c;
}

Result<Graph> build_gemma3(const ModelConfig& c) {
  DenseRecorder r(c);
  ValueId x = r.embed();
  for (int32_t l = 0; l < c.layers; ++l) {
    r.begin_layer(l);
    const ValueId h = r.norm("attn_norm", x, "input_layernorm");
    ValueId q = r.linear("attn.q", h, "self_attn.q_proj", r.q_width(), c.hidden, c.qkv_bias);
    ValueId k = r.linear("attn.k", h, "self_attn.k_proj", r.kv_width(), c.hidden, c.qkv_bias);
    const ValueId v = r.linear("attn.v", h, "self_attn.v_proj", r.kv_width(), c.hidden, c.qkv_bias);
    q = r.head_norm("attn.q_norm", q, "self_attn.q_norm");
    k = r.head_norm("attn.k_norm", k, "self_attn.k_norm");
    q = r.rotate("attn.q_rope", q, c.heads);
    k = r.rotate("attn.k_rope", k, c.kv_heads);
    const ValueId a = r.attend("attn", q, k, v);
    const ValueId o = r.linear("attn.o", a, "self_attn.o_proj", c.hidden, r.q_width(), c.output_bias);
    x = r.add("attn_residual", x, r.norm("attn_post_norm", o, "post_attention_layernorm"));

    const ValueId m = r.norm("mlp_norm", x, "pre_feedforward_layernorm");
    const ValueId gate = r.linear("mlp.gate", m, "mlp.gate_proj", c.ffn, c.hidden);
    const ValueId up = r.linear("mlp.up", m, "mlp.up_proj", c.ffn, c.hidden);
    const ValueId y = r.gated_gelu("mlp.act", gate, up);
    const ValueId down = r.linear("mlp.down", y, "mlp.down_proj", c.hidden, c.ffn);
    x = r.add("mlp_residual", x, r.norm("mlp_post_norm", down, "post_feedforward_layernorm"));
  }
  return std::move(r).finish(x);
}

}  // namespace invar
