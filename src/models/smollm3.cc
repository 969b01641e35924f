// SmolLM3: every fourth layer (by default) sees no positions.

#include <fmt/format.h>

#include <cmath>

#include "format/hf_config.h"
#include "graph/builder.h"
#include "models/dense_config.h"
#include "models/family.h"

namespace invar {

Result<ModelConfig> parse_smollm3(const ModelSource& source) {
  ASSIGN_OR_RETURN(ModelConfig c,
                   parse_dense(source, {.rope_theta = 2e6, .tied_head = true, .window_switch = true}));
  int64_t interval = 4;
  if (source.kind() == SourceKind::kHuggingFace) {
    const auto layers = source.config()->get_ints("no_rope_layers");
    if (!layers.ok()) return layers.status();
    if (layers->has_value()) {  // 1: rotates
      if ((*layers)->size() != c.rotates.size())
        return corrupt(fmt::format("{}: no_rope_layers has {} elements for {} layers", source.path(),
                                   (*layers)->size(), c.layers));
      for (size_t l = 0; l < c.rotates.size(); ++l)
        c.rotates[l] = (**layers)[l] != 0;
      return c;
    }
    ASSIGN_OR_RETURN(const auto stored, source.config()->get_int("no_rope_layer_interval"));
    interval = stored.value_or(interval);
    if (interval < 1)
      return corrupt(
          fmt::format("{}: no_rope_layer_interval is {}, not at least 1", source.path(), interval));
  }
  for (int64_t l = 0; l < c.layers; ++l)
    c.rotates[static_cast<size_t>(l)] = (l + 1) % interval != 0;
  return c;
}

Result<Graph> build_smollm3(const ModelConfig& c) {
  GraphBuilder b;
  const int rope = b.rope(c.rope);
  const int group = b.kv_group({.layers = c.layers, .kv_heads = c.kv_heads, .head_dim = c.head_dim});
  const int64_t q_width = int64_t{c.heads} * c.head_dim, kv_width = int64_t{c.kv_heads} * c.head_dim;
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim)));

  const WeightId table = b.matrix("model.embed_tokens.weight", c.vocab, c.hidden);
  ValueId x = b.embed("embed", table);
  for (int32_t l = 0; l < c.layers; ++l) {
    const std::string site = fmt::format("layers.{}.", l), name = fmt::format("model.layers.{}.", l);
    const auto norm = [&](const std::string& at, ValueId in, const char* weight) {
      return b.rms_norm(site + at, in, b.vector(name + weight + ".weight", c.hidden), c.rms_eps);
    };
    const auto linear = [&](const std::string& at, ValueId in, const std::string& weight, int64_t rows,
                            int64_t cols, bool bias, int rotary_heads = 0) {
      const WeightId w = b.matrix(name + weight + ".weight", rows, cols, rotary_heads);
      return b.linear(site + at, in, w, bias ? b.vector(name + weight + ".bias", rows, rotary_heads) : kNone);
    };

    const ValueId h = norm("attn_norm", x, "input_layernorm");
    ValueId q = linear("attn.q", h, "self_attn.q_proj", q_width, c.hidden, c.qkv_bias, c.heads);
    ValueId k = linear("attn.k", h, "self_attn.k_proj", kv_width, c.hidden, c.qkv_bias, c.kv_heads);
    const ValueId v = linear("attn.v", h, "self_attn.v_proj", kv_width, c.hidden, c.qkv_bias);
    if (c.rotates[static_cast<size_t>(l)]) {
      q = b.rotate(site + "attn.q_rope", q, rope, c.heads, c.head_dim);
      k = b.rotate(site + "attn.k_rope", k, rope, c.kv_heads, c.head_dim);
    }
    const ValueId a = b.attend(
        site + "attn", q, k, v,
        {.group = group, .heads = c.heads, .kv_heads = c.kv_heads, .head_dim = c.head_dim, .scale = scale});
    const ValueId o = linear("attn.o", a, "self_attn.o_proj", c.hidden, q_width, c.output_bias);
    x = b.add(site + "attn_residual", x, o);

    const ValueId m = norm("mlp_norm", x, "post_attention_layernorm");
    const ValueId gate = linear("mlp.gate", m, "mlp.gate_proj", c.ffn, c.hidden, c.mlp_bias);
    const ValueId up = linear("mlp.up", m, "mlp.up_proj", c.ffn, c.hidden, c.mlp_bias);
    const ValueId y = b.gated_silu(site + "mlp.act", gate, up);
    const ValueId down = linear("mlp.down", y, "mlp.down_proj", c.hidden, c.ffn, c.mlp_bias);
    x = b.add(site + "mlp_residual", x, down);
  }
  x = b.select_logit_rows("logit_rows", x);
  x = b.rms_norm("final_norm", x, b.vector("model.norm.weight", c.hidden), c.rms_eps);
  const WeightId head = c.tied_head ? table : b.matrix("lm_head.weight", c.vocab, c.hidden);
  return std::move(b).finish(b.linear("head", x, head), c.vocab);
}

}  // namespace invar
