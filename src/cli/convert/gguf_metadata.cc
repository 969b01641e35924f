#include "cli/convert/gguf_metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace invar {
namespace {

class Keys {
 public:
  Keys(const char* architecture, GgufFileWriter& writer) : prefix_(architecture), writer_(writer) {}
  void u32(const char* key, int64_t value) { writer_.add_u32(name(key), static_cast<uint32_t>(value)); }
  void f32(const char* key, double value) { writer_.add_f32(name(key), static_cast<float>(value)); }
  void flag(const char* key, bool value) { writer_.add_bool(name(key), value); }
  void text(const char* key, const char* value) { writer_.add_string(name(key), value); }
  void flags(const char* key, const std::vector<bool>& values) { writer_.add_bools(name(key), values); }
  // One number where all are the same.
  void numbers(const char* key, const std::vector<int32_t>& values) {
    if (std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end())
      u32(key, values.front());
    else
      writer_.add_i32s(name(key), values);
  }

 private:
  std::string name(const char* key) const { return prefix_ + "." + key; }
  std::string prefix_;
  GgufFileWriter& writer_;
};

// The number whose inverse readers take, so that they get `factor`.
double inverse(float factor) {
  const float near = static_cast<float>(1.0 / static_cast<double>(factor));
  for (const float x : {near, std::nextafter(near, 0.0f), std::nextafter(near, 2 * near)})
    if (static_cast<float>(1.0 / static_cast<double>(x)) == factor) return static_cast<double>(x);
  return static_cast<double>(near);
}

void add_sizes(const ModelConfig& c, Keys& k) {
  k.u32("block_count", c.layers);
  k.u32("context_length", c.context_length);
  k.u32("embedding_length", c.hidden);
  k.u32("vocab_size", c.vocab);
  k.u32("attention.head_count", c.heads);
  std::vector<int32_t> kv_heads, ffn;
  for (int32_t l = 0; l < c.layers; ++l) {
    kv_heads.push_back(c.shape(l).kv_heads);
    ffn.push_back(c.shape(l).ffn);
  }
  k.numbers("attention.head_count_kv", kv_heads);
  k.numbers("feed_forward_length", ffn);
  // Where layers differ, the plain keys are of those without a window.
  const int32_t head_dim = c.shapes.empty() ? c.head_dim : c.rope.dim;
  k.u32("attention.key_length", head_dim);
  k.u32("attention.value_length", head_dim);
  k.f32(c.layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
        static_cast<double>(c.norm_eps));
  if (c.shapes.empty()) return;
  k.u32("attention.key_length_swa", c.head_dim);
  k.u32("attention.value_length_swa", c.head_dim);
  k.u32("rope.dimension_count_swa", c.head_dim);
  k.u32("attention.shared_kv_layers", c.shared_kv_layers);
  k.u32("embedding_length_per_layer_input", c.layer_input);
}

void add_rope(const ModelConfig& c, Keys& k) {
  k.u32("rope.dimension_count", c.rope.dim);
  k.f32("rope.freq_base", c.theta);
  if (c.window_rope) k.f32("rope.freq_base_swa", c.window_theta);
  if (!c.rope_recipe) return;
  const RopeScaling& s = c.rope_recipe->scaling;
  if (s.rule == RopeRule::kLongrope) {
    k.u32("rope.scaling.original_context_length", static_cast<int64_t>(s.original_context));
    k.f32("rope.scaling.attn_factor", static_cast<double>(c.rope.attention_factor));
  }
  if (s.rule != RopeRule::kLinear && s.rule != RopeRule::kYarn) return;
  k.text("rope.scaling.type", s.rule == RopeRule::kYarn ? "yarn" : "linear");
  k.f32("rope.scaling.factor", s.factor);
  if (s.rule != RopeRule::kYarn) return;
  k.u32("rope.scaling.original_context_length", static_cast<int64_t>(s.original_context));
  k.f32("rope.scaling.yarn_beta_fast", s.beta_fast);
  k.f32("rope.scaling.yarn_beta_slow", s.beta_slow);
}

void add_windows(const ModelConfig& c, bool told, Keys& k) {
  const int32_t window = *std::max_element(c.windows.begin(), c.windows.end());
  if (window == 0) return;
  k.u32("attention.sliding_window", window);
  if (!told && c.shapes.empty()) return;
  std::vector<bool> layers;
  for (const int32_t w : c.windows)
    layers.push_back(w > 0);
  k.flags("attention.sliding_window_pattern", layers);
}

void add_factors(const ModelConfig& c, bool told, Keys& k) {
  if (c.attention_softcap > 0) k.f32("attn_logit_softcapping", static_cast<double>(c.attention_softcap));
  if (c.logits_softcap > 0) k.f32("final_logit_softcapping", static_cast<double>(c.logits_softcap));
  if (!told) return;
  k.f32("embedding_scale", static_cast<double>(c.embedding_multiplier));
  k.f32("residual_scale", static_cast<double>(c.residual_multiplier));
  k.f32("logit_scale", inverse(c.logits_multiplier));
  k.f32("attention.scale", static_cast<double>(c.attention_scale));
}

void add_experts(const ExpertsConfig& e, Keys& k) {
  if (e.count == 0) return;
  k.u32("expert_count", e.count);
  k.u32("expert_used_count", e.attr.chosen);
  k.u32("expert_feed_forward_length", e.ffn);
  if (e.shared_ffn > 0 && e.shared_gate) k.u32("expert_shared_feed_forward_length", e.shared_ffn);
  if (e.shared_ffn > 0 && !e.shared_gate) k.u32("expert_shared_count", e.shared_ffn / e.ffn);
  if (e.attr.routing == Routing::kSigmoid) k.u32("expert_gating_func", 2);
  if (e.attr.routing != Routing::kSoftmaxOfChosen) k.flag("expert_weights_norm", e.attr.renormalize);
  if (e.attr.scale != 1) k.f32("expert_weights_scale", static_cast<double>(e.attr.scale));
  const auto dense = std::find(e.layers.begin(), e.layers.end(), true) - e.layers.begin();
  if (dense > 0) k.u32("leading_dense_block_count", dense);
}

}  // namespace

void add_metadata(const ModelConfig& c, const char* architecture, ToldKeys told, GgufFileWriter& writer) {
  writer.add_string("general.architecture", architecture);
  writer.add_string("general.type", "model");
  Keys k(architecture, writer);
  add_sizes(c, k);
  add_rope(c, k);
  add_windows(c, told.window_layers, k);
  add_factors(c, told.factors, k);
  add_experts(c.experts, k);
}

}  // namespace invar
