// OLMo 2 and 3: norms on what a block gives instead of what it takes, q and k normalized over all heads at
// once. Three of four layers of OLMo 3 have a window and rotate without scaling. Its GGUF files are called
// olmo2.

#include <utility>

#include "models/dense_config.h"
#include "models/dense_recorder.h"
#include "models/family.h"
#include "models/layer_windows.h"

namespace invar {

namespace {

Result<ModelConfig> parse(const ModelSource& source, const WindowPattern& pattern) {
  ASSIGN_OR_RETURN(ModelConfig c, parse_dense(source, {.rope_theta = 500000, .window_theta = -1}));
  RETURN_IF_ERROR(parse_windows(source, WindowRule::kPattern, &c, pattern));
  return c;
}

}  // namespace

Result<ModelConfig> parse_olmo2(const ModelSource& source) {
  return parse(source, {.interval = 4});
}

Result<ModelConfig> parse_olmo3(const ModelSource& source) {
  return parse(source, {.interval = 4, .size = 4096});
}

Result<Graph> build_olmo2(const ModelConfig& c) {
  DenseRecorder r(c);
  ValueId x = r.embed();
  for (int32_t l = 0; l < c.layers; ++l) {
    r.begin_layer(l);
    ValueId q = r.linear("attn.q", x, "self_attn.q_proj", r.q_width(), c.hidden, c.qkv_bias);
    ValueId k = r.linear("attn.k", x, "self_attn.k_proj", r.kv_width(), c.hidden, c.qkv_bias);
    const ValueId v = r.linear("attn.v", x, "self_attn.v_proj", r.kv_width(), c.hidden, c.qkv_bias);
    q = r.wide_norm("attn.q_norm", q, "self_attn.q_norm", r.q_width());
    k = r.wide_norm("attn.k_norm", k, "self_attn.k_norm", r.kv_width());
    q = r.rotate("attn.q_rope", q, c.heads);
    k = r.rotate("attn.k_rope", k, c.kv_heads);
    const ValueId a = r.attend("attn", q, k, v);
    const ValueId o = r.linear("attn.o", a, "self_attn.o_proj", c.hidden, r.q_width(), c.output_bias);
    x = r.add("attn_residual", x, r.norm("attn_post_norm", o, "post_attention_layernorm"));

    x = r.add("mlp_residual", x, r.norm("mlp_post_norm", r.network(x), "post_feedforward_layernorm"));
  }
  return std::move(r).finish(x);
}

}  // namespace invar
