// SmolLM3: every fourth layer (by default) sees no positions.

#include <fmt/format.h>

#include <utility>

#include "format/hf_config.h"
#include "models/dense_config.h"
#include "models/dense_recorder.h"
#include "models/family.h"
#include "models/layer_windows.h"

namespace invar {

namespace {

// Which layers rotate, by list or by interval.
Status parse_rotates(const ModelSource& source, ModelConfig* config) {
  int64_t interval = 4;
  if (source.kind() == SourceKind::kHuggingFace) {
    ASSIGN_OR_RETURN(const auto layers, source.config()->get_ints("no_rope_layers"));
    if (layers) {  // 1: rotates
      if (layers->size() != config->rotates.size())
        return corrupt(fmt::format("{}: no_rope_layers has {} elements for {} layers", source.path(),
                                   layers->size(), config->layers));
      for (size_t l = 0; l < config->rotates.size(); ++l)
        config->rotates[l] = (*layers)[l] != 0;
      return {};
    }
    ASSIGN_OR_RETURN(const auto stored, source.config()->get_int("no_rope_layer_interval"));
    interval = stored.value_or(interval);
    if (interval < 1)
      return corrupt(
          fmt::format("{}: no_rope_layer_interval is {}, not at least 1", source.path(), interval));
  }
  for (int64_t l = 0; l < config->layers; ++l)
    config->rotates[static_cast<size_t>(l)] = (l + 1) % interval != 0;
  return {};
}

}  // namespace

Result<ModelConfig> parse_smollm3(const ModelSource& source) {
  ASSIGN_OR_RETURN(ModelConfig c, parse_dense(source, {.rope_theta = 2e6, .tied_head = true}));
  RETURN_IF_ERROR(parse_rotates(source, &c));
  RETURN_IF_ERROR(parse_windows(source, WindowRule::kUnrotatedLayers, &c));
  return c;
}

Result<Graph> build_smollm3(const ModelConfig& c) {
  DenseRecorder r(c);
  ValueId x = r.embed();
  for (int32_t l = 0; l < c.layers; ++l) {
    r.begin_layer(l);
    const ValueId h = r.norm("attn_norm", x, "input_layernorm");
    ValueId q = r.linear("attn.q", h, "self_attn.q_proj", r.q_width(), c.hidden, c.qkv_bias, c.heads);
    ValueId k = r.linear("attn.k", h, "self_attn.k_proj", r.kv_width(), c.hidden, c.qkv_bias, c.kv_heads);
    const ValueId v = r.linear("attn.v", h, "self_attn.v_proj", r.kv_width(), c.hidden, c.qkv_bias);
    if (c.rotates[static_cast<size_t>(l)]) {
      q = r.rotate("attn.q_rope", q, c.heads);
      k = r.rotate("attn.k_rope", k, c.kv_heads);
    }
    const ValueId a = r.attend("attn", q, k, v);
    const ValueId o = r.linear("attn.o", a, "self_attn.o_proj", c.hidden, r.q_width(), c.output_bias);
    x = r.add("attn_residual", x, o);

    const ValueId m = r.norm("mlp_norm", x, "post_attention_layernorm");
    x = r.add("mlp_residual", x, r.network(m));
  }
  return std::move(r).finish(x);
}

}  // namespace invar
