// StarCoder2: layer norms, biases everywhere, gelu without a gate.

#include <utility>

#include "format/hf_config.h"
#include "models/dense_config.h"
#include "models/dense_recorder.h"
#include "models/family.h"
#include "models/layer_windows.h"

namespace invar {

Result<ModelConfig> parse_starcoder2(const ModelSource& source) {
  ASSIGN_OR_RETURN(ModelConfig c, parse_dense(source, {.tied_head = true,
                                                       .bias_keys = false,
                                                       .qkv_bias = true,
                                                       .activation = "gelu_pytorch_tanh",
                                                       .layer_norm = true}));
  if (source.kind() == SourceKind::kHuggingFace) {
    ASSIGN_OR_RETURN(const auto bias, source.config()->get_bool("use_bias"));
    c.qkv_bias = bias.value_or(true);
  }
  RETURN_IF_ERROR(parse_windows(source, WindowRule::kAllLayers, &c));
  return c;
}

Result<Graph> build_starcoder2(const ModelConfig& c) {
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
    const ValueId o = r.linear("attn.o", a, "self_attn.o_proj", c.hidden, r.q_width(), c.qkv_bias);
    x = r.add("attn_residual", x, o);

    const ValueId m = r.norm("mlp_norm", x, "post_attention_layernorm");
    const ValueId up = r.linear("mlp.up", m, "mlp.c_fc", c.ffn, c.hidden, c.qkv_bias);
    const ValueId y = r.gelu("mlp.act", up);
    const ValueId down = r.linear("mlp.down", y, "mlp.c_proj", c.hidden, c.ffn, c.qkv_bias);
    x = r.add("mlp_residual", x, down);
  }
  return std::move(r).finish(x);
}

}  // namespace invar
