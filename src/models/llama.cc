// Llama 2 and 3, SmolLM2, TinyLlama; Mistral, whose every layer may have a window; Mixtral, a Mistral with
// experts, which GGUF files call llama. Qwen 2 has these layers, too, and so have Granite and MiniCPM, with
// what a block gives scaled; where that factor is 1, nothing is recorded for it.

#include <utility>

#include "format/gguf.h"
#include "models/dense_config.h"
#include "models/dense_recorder.h"
#include "models/experts_config.h"
#include "models/family.h"
#include "models/layer_windows.h"

namespace invar {

namespace {

constexpr ExpertsRules kMixtral = {.count_key = "num_local_experts",
                                   .ffn_key = "intermediate_size",
                                   .names = {.router = "block_sparse_moe.gate",
                                             .experts = "block_sparse_moe.experts",
                                             .gate = "w1",
                                             .up = "w3",
                                             .down = "w2"}};

}  // namespace

Result<ModelConfig> parse_llama(const ModelSource& source) {
  int64_t experts = 0;
  if (source.kind() == SourceKind::kGguf) {
    ASSIGN_OR_RETURN(const auto count, source.gguf()->get_int("llama.expert_count"));
    experts = count.value_or(0);
  }
  ASSIGN_OR_RETURN(ModelConfig c, parse_dense(source, {.experts = experts > 0}));
  if (experts > 0) RETURN_IF_ERROR(parse_experts(source, kMixtral, &c));
  RETURN_IF_ERROR(parse_windows(source, WindowRule::kNone, &c));
  return c;
}

Result<ModelConfig> parse_mistral(const ModelSource& source) {
  ASSIGN_OR_RETURN(ModelConfig c, parse_dense(source, {.bias_keys = false}));
  RETURN_IF_ERROR(parse_windows(source, WindowRule::kAllLayers, &c));
  return c;
}

Result<ModelConfig> parse_mixtral(const ModelSource& source) {
  ASSIGN_OR_RETURN(ModelConfig c, parse_dense(source, {.bias_keys = false, .experts = true}));
  RETURN_IF_ERROR(parse_experts(source, kMixtral, &c));
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
    const ValueId down = r.network(m);
    x = r.add("mlp_residual", x, r.scale("mlp.down_scale", down, c.residual_multiplier));
  }
  return std::move(r).finish(x);
}

}  // namespace invar
