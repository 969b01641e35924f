// Gemma 2: norms before and after each block, softcaps on scores and logits, a window in every other layer.

#include <string>
#include <utility>

#include "format/gguf.h"
#include "models/dense_config.h"
#include "models/dense_recorder.h"
#include "models/family.h"
#include "models/gemma.h"
#include "models/layer_windows.h"

namespace invar {
namespace {

// Files of the first converters lack the keys; all models that there are have these, and llama.cpp assumes
// them.
void set_absent_softcaps(const ModelSource& source, ModelConfig* c) {
  const std::string prefix = source.architecture() + ".";
  if (source.gguf()->find(prefix + "attn_logit_softcapping") == nullptr) c->attention_softcap = 50;
  if (source.gguf()->find(prefix + "final_logit_softcapping") == nullptr) c->logits_softcap = 30;
}

}  // namespace

Result<ModelConfig> parse_gemma2(const ModelSource& source) {
  ASSIGN_OR_RETURN(ModelConfig c, parse_dense(source, {.tied_head = true,
                                                       .head_dim = 256,
                                                       .activation = "gelu_pytorch_tanh",
                                                       .softcaps = true,
                                                       .query_scalar = true}));
  set_gemma(source, &c, 46);  // 27B
  if (source.kind() == SourceKind::kGguf) set_absent_softcaps(source, &c);
  RETURN_IF_ERROR(parse_windows(source, WindowRule::kPattern, &c, {.interval = 2, .size = 4096}));
  return c;
}

Result<Graph> build_gemma2(const ModelConfig& c) {
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
