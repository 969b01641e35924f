// gpt-oss: a score without a value takes part in every head's softmax, every other layer has a window, every
// matrix of a layer has a bias, and the experts' units are clamped.

#include <utility>

#include "format/hf_config.h"
#include "models/dense_config.h"
#include "models/dense_keys.h"
#include "models/dense_recorder.h"
#include "models/experts_config.h"
#include "models/family.h"
#include "models/layer_windows.h"

namespace invar {
namespace {

constexpr ExpertsRules kRules = {.count_key = "num_local_experts",
                                 .ffn_key = "intermediate_size",
                                 .routing = Routing::kSoftmaxOfChosen,
                                 .biases = true,
                                 .names = {.router = "mlp.router"}};

// Constants of the unit; GGUF has no keys for them.
Status parse_unit(const ModelSource& source, ExpertsAttr* attr) {
  attr->unit = GatedUnit::kClampedSilu;
  attr->alpha = 1.702f;
  attr->limit = 7.0f;
  if (source.kind() == SourceKind::kGguf) return {};
  for (const auto& [key, to] : {std::pair{"swiglu_alpha", &attr->alpha}, {"swiglu_limit", &attr->limit}}) {
    ASSIGN_OR_RETURN(const auto stored, source.config()->get_double(key));
    if (stored) RETURN_IF_ERROR(check_factor(key, *stored, to));
  }
  return {};
}

}  // namespace

Result<ModelConfig> parse_gpt_oss(const ModelSource& source) {
  ASSIGN_OR_RETURN(
      ModelConfig c,
      parse_dense(source, {.rope_theta = 150000, .head_dim = 64, .qkv_bias = true, .experts = true}));
  RETURN_IF_ERROR(parse_experts(source, kRules, &c));
  RETURN_IF_ERROR(parse_unit(source, &c.experts.attr));
  RETURN_IF_ERROR(parse_windows(source, WindowRule::kPattern, &c, {.interval = 2, .size = 128}));
  return c;
}

Result<Graph> build_gpt_oss(const ModelConfig& c) {
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
    const ValueId a = r.attend("attn", q, k, v, "self_attn.sinks");
    const ValueId o = r.linear("attn.o", a, "self_attn.o_proj", c.hidden, r.q_width(), c.output_bias);
    x = r.add("attn_residual", x, o);

    const ValueId m = r.norm("mlp_norm", x, "post_attention_layernorm");
    x = r.add("mlp_residual", x, r.network(m));
  }
  return std::move(r).finish(x);
}

}  // namespace invar
