#include <fmt/format.h>

#include <cmath>
#include <set>
#include <tuple>

#include "models/dense_keys.h"
#include "models/gemma.h"

namespace invar {
namespace {

float inverse_root(double x) {
  return static_cast<float>(1.0 / std::sqrt(x));
}

}  // namespace

Status set_shared_layers(int64_t count, ModelConfig* c) {
  if (count < 0 || count >= c->layers)
    return corrupt(
        fmt::format("{} of {} layers read other layers' keys (num_kv_shared_layers)", count, c->layers));
  c->shared_kv_layers = static_cast<int32_t>(count);
  std::set<std::tuple<int32_t, int32_t, int32_t>> written;
  for (int32_t l = 0; l < c->layers; ++l) {
    const LayerShape s = c->shape(l);
    const std::tuple kind(c->windows[static_cast<size_t>(l)], s.kv_heads, s.head_dim);
    if (l < c->layers - c->shared_kv_layers) {
      written.insert(kind);
      continue;
    }
    if (!written.contains(kind))
      return corrupt(
          fmt::format("layer {} reads keys of an earlier layer of its kind, but there is none", l));
    for (const char* part : {"k_proj", "v_proj", "k_norm"})
      c->idle_tensors.push_back(fmt::format("model.layers.{}.self_attn.{}.weight", l, part));
  }
  return {};
}

Status set_layer_input(int64_t width, int64_t rows, ModelConfig* c) {
  if (width == 0) return {};
  RETURN_IF_ERROR(check_size("hidden_size_per_layer_input", width, kMaxWidth / c->layers, &c->layer_input));
  return check_size("vocab_size_per_layer_input", rows, c->vocab, &c->layer_input_vocab);
}

ValueId record_layer_inputs(DenseRecorder& r, const ModelConfig& c, ValueId x) {
  const int64_t width = int64_t{c.layers} * c.layer_input;
  ValueId own = r.look_up("inputs.embed", "model.embed_tokens_per_layer", c.layer_input_vocab, width);
  own = r.scale("inputs.embed_scale", own, static_cast<float>(std::sqrt(static_cast<double>(c.layer_input))));
  ValueId context = r.linear("inputs.context", x, "model.per_layer_model_projection", width, c.hidden);
  context = r.scale("inputs.context_scale", context, inverse_root(c.hidden));
  context = r.part_norm("inputs.context_norm", context, "model.per_layer_projection_norm", c.layer_input);
  return r.scale("inputs.scale", r.add("inputs", context, own), inverse_root(2));
}

ValueId record_layer_input(DenseRecorder& r, const ModelConfig& c, ValueId x, ValueId inputs, int32_t layer) {
  const ValueId own = r.columns("input", inputs, layer * c.layer_input, c.layer_input);
  const ValueId gate = r.linear("input.gate", x, "per_layer_input_gate", c.layer_input, c.hidden);
  const ValueId y = r.gated_gelu("input.act", gate, own);
  const ValueId wide = r.linear("input.out", y, "per_layer_projection", c.hidden, c.layer_input);
  return r.norm("input_post_norm", wide, "post_per_layer_input_norm");
}

}  // namespace invar
