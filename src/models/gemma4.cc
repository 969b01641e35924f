// Gemma 4 (text): layers without a window have their own number and size of KV heads, a rope that turns a
// part of the pairs, and perhaps no projection for values. The last layers may read the keys and values of
// earlier ones. A layer may have experts beside its network, or an input of its own beside the stream; it
// scales the stream at its end.

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/quote.h"
#include "format/gguf.h"
#include "format/hf_config.h"
#include "models/dense_config.h"
#include "models/dense_keys.h"
#include "models/dense_recorder.h"
#include "models/experts_config.h"
#include "models/family.h"
#include "models/gemma.h"
#include "models/layer_windows.h"
#include "models/rope_scaling.h"

namespace invar {
namespace {

constexpr ExpertNames kNames = {.router = "router.proj", .experts = "experts"};

Status check_shapes(const ModelConfig& c) {
  for (const LayerShape& s : c.shapes) {
    int32_t checked = 0;
    RETURN_IF_ERROR(check_size("the number of KV heads of a layer", s.kv_heads, kMaxHeads, &checked));
    RETURN_IF_ERROR(check_size("the head dimension of a layer", s.head_dim, kMaxHeadDim, &checked));
    RETURN_IF_ERROR(check_size("the feed-forward width of a layer", s.ffn, kMaxWidth, &checked));
    ModelConfig alone = c;
    alone.kv_heads = s.kv_heads, alone.head_dim = s.head_dim;
    RETURN_IF_ERROR(check_shape(alone));
  }
  return {};
}

Status read_hf_ropes(const HfConfig& c, int32_t full_head_dim, ModelConfig* out) {
  const bool given = c.has("rope_parameters");
  for (const char* key : {"rope_parameters.full_attention", "rope_parameters.sliding_attention"}) {
    ASSIGN_OR_RETURN(const bool described, c.has_members(key));
    if (given && !described) return corrupt(fmt::format("config.json: {} is missing or empty", key));
  }
  const std::string full = "rope_parameters.full_attention.", window = "rope_parameters.sliding_attention.";
  ASSIGN_OR_RETURN(const auto full_type, c.get_string(full + "rope_type"));
  ASSIGN_OR_RETURN(const auto window_type, c.get_string(window + "rope_type"));
  if (full_type.value_or("proportional") != "proportional" || window_type.value_or("default") != "default")
    return unsupported(
        fmt::format("rope_parameters of types {} and {} are not supported by this version; this family has "
                    "proportional and default",
                    quote(full_type.value_or("")), quote(window_type.value_or(""))));
  ASSIGN_OR_RETURN(const auto theta, c.get_double(full + "rope_theta"));
  ASSIGN_OR_RETURN(const auto window_theta, c.get_double(window + "rope_theta"));
  ASSIGN_OR_RETURN(const auto proportion, c.get_double(full + "partial_rotary_factor"));
  ASSIGN_OR_RETURN(const auto factor, c.get_double(full + "factor"));
  const RopeScaling scaling{.rule = RopeRule::kProportional,
                            .factor = factor.value_or(1),
                            .proportion = proportion.value_or(given ? 1 : 0.25)};
  out->theta = theta.value_or(1e6);
  out->window_theta = window_theta.value_or(10000);
  ASSIGN_OR_RETURN(out->rope, make_rope(out->theta, full_head_dim, scaling));
  ASSIGN_OR_RETURN(out->window_rope, make_rope(out->window_theta, out->head_dim, {}));
  return {};
}

Status read_hf(const HfConfig& c, ModelConfig* out) {
  ASSIGN_OR_RETURN(const auto head_dim, c.get_int("global_head_dim"));
  if (!head_dim && c.has("per_layer_config"))
    return unsupported("per_layer_config without global_head_dim is not supported by this version");
  ASSIGN_OR_RETURN(const auto kv_heads, c.get_int("num_global_key_value_heads"));
  ASSIGN_OR_RETURN(const auto keys_are_values, c.get_bool("attention_k_eq_v"));
  ASSIGN_OR_RETURN(const auto shared, c.get_int("num_kv_shared_layers"));
  ASSIGN_OR_RETURN(const auto wide, c.get_bool("use_double_wide_mlp"));
  ASSIGN_OR_RETURN(const auto input, c.get_int("hidden_size_per_layer_input"));
  ASSIGN_OR_RETURN(const auto input_vocab, c.get_int("vocab_size_per_layer_input"));
  const LayerShape window{out->kv_heads, out->head_dim, out->ffn};
  LayerShape full = window;
  RETURN_IF_ERROR(check_size("global_head_dim", head_dim.value_or(512), kMaxHeadDim, &full.head_dim));
  if (keys_are_values.value_or(false) && kv_heads)
    RETURN_IF_ERROR(check_size("num_global_key_value_heads", *kv_heads, kMaxHeads, &full.kv_heads));
  out->windows.back() = 0;  // as Hugging Face's configuration class has it
  for (int32_t l = 0; l < out->layers; ++l) {
    const bool is_full = out->windows[static_cast<size_t>(l)] == 0;
    out->shapes.push_back(is_full ? full : window);
    if (wide.value_or(false) && shared.value_or(0) >= out->layers - l) out->shapes.back().ffn *= 2;
    out->keys_are_values.push_back(keys_are_values.value_or(false) && is_full);
  }
  RETURN_IF_ERROR(check_shapes(*out));
  RETURN_IF_ERROR(read_hf_ropes(c, full.head_dim, out));
  RETURN_IF_ERROR(set_layer_input(input.value_or(256), input_vocab.value_or(262144), out));
  return set_shared_layers(shared.value_or(0), out);
}

// A number for every layer: as many, or one for all.
Result<std::vector<int32_t>> layer_numbers(const GgufFile& file, const std::string& key, size_t layers,
                                           int64_t most) {
  const GgufEntry* entry = file.find(key);
  std::vector<int64_t> numbers;
  if (entry != nullptr && entry->type == GgufType::kArray) {
    ASSIGN_OR_RETURN(const auto list, file.get_ints(key));
    numbers = *list;
  } else {
    ASSIGN_OR_RETURN(const auto one, file.get_int(key));
    numbers.assign(layers, one.value_or(0));
  }
  if (numbers.size() != layers)
    return corrupt(fmt::format("{} has {} numbers for {} layers", key, numbers.size(), layers));
  std::vector<int32_t> checked(layers);
  for (size_t l = 0; l < layers; ++l)
    RETURN_IF_ERROR(check_size(key.c_str(), numbers[l], most, &checked[l]));
  return checked;
}

Status read_gguf(const ModelSource& source, ModelConfig* out) {
  const GgufFile& file = *source.gguf();
  const std::string prefix = source.architecture() + ".";
  const auto number = [&](const char* key) { return file.get_int(prefix + key); };
  const int32_t full_head_dim = out->head_dim;
  ASSIGN_OR_RETURN(const auto key_dim, number("attention.key_length_swa"));
  ASSIGN_OR_RETURN(const auto value_dim, number("attention.value_length_swa"));
  if (key_dim != value_dim)
    return unsupported("attention.key_length_swa and value_length_swa differ, which is not supported");
  RETURN_IF_ERROR(
      check_size("attention.key_length_swa", key_dim.value_or(full_head_dim), kMaxHeadDim, &out->head_dim));
  const size_t layers = out->windows.size();
  ASSIGN_OR_RETURN(const auto ffn, layer_numbers(file, prefix + "feed_forward_length", layers, kMaxWidth));
  ASSIGN_OR_RETURN(const auto kv_heads,
                   layer_numbers(file, prefix + "attention.head_count_kv", layers, kMaxHeads));
  ASSIGN_OR_RETURN(const auto shared, number("attention.shared_kv_layers"));
  for (size_t l = 0; l < layers; ++l) {
    out->shapes.push_back({kv_heads[l], out->windows[l] == 0 ? full_head_dim : out->head_dim, ffn[l]});
    const std::string value = fmt::format("model.layers.{}.self_attn.v_proj.weight", l);
    out->keys_are_values.push_back(out->windows[l] == 0 && source.find(value) == nullptr);
  }
  RETURN_IF_ERROR(check_shapes(*out));
  ASSIGN_OR_RETURN(const auto theta, file.get_f32(prefix + "rope.freq_base"));
  ASSIGN_OR_RETURN(const auto window_theta, file.get_f32(prefix + "rope.freq_base_swa"));
  ASSIGN_OR_RETURN(const auto divisors, frequency_factors(source, "rope_freqs.weight", full_head_dim, out));
  ASSIGN_OR_RETURN(out->rope,
                   make_rope(static_cast<double>(theta.value_or(1e6f)), full_head_dim, {}, divisors));
  ASSIGN_OR_RETURN(out->window_rope,
                   make_rope(static_cast<double>(window_theta.value_or(10000)), out->head_dim, {}));
  ASSIGN_OR_RETURN(const auto input, number("embedding_length_per_layer_input"));
  const SourceTensor* table = source.find("model.embed_tokens_per_layer.weight");
  const bool has_rows = table != nullptr && !table->shape.empty();
  RETURN_IF_ERROR(set_layer_input(input.value_or(0), has_rows ? table->shape[0] : 0, out));
  return set_shared_layers(shared.value_or(0), out);
}

// Some sizes have experts beside the network of every layer, all matrices of a layer in two stacks.
Status read_experts(const ModelSource& source, ModelConfig* out) {
  if (source.kind() == SourceKind::kGguf) {
    ASSIGN_OR_RETURN(const auto count, source.gguf()->get_int(source.architecture() + ".expert_count"));
    if (count.value_or(0) == 0) return {};
  } else {
    ASSIGN_OR_RETURN(const auto enabled, source.config()->get_bool("enable_moe_block"));
    if (!enabled.value_or(false)) return {};
  }
  RETURN_IF_ERROR(parse_experts(source, {.chosen_key = "top_k_experts", .names = kNames}, out));
  out->experts.layers.assign(static_cast<size_t>(out->layers), true);
  out->experts.storage = ExpertStorage::kFused;
  out->experts.attr.unit = GatedUnit::kGelu;
  return {};
}

// What the experts make of the stream x. The router sees x by its size alone, the experts a norm of their
// own.
ValueId record_experts(DenseRecorder& r, const ModelConfig& c, ValueId x) {
  ValueId seen = r.multiply("router.norm_scale", r.bare_norm("router.norm", x), "router.scale", c.hidden);
  seen = r.scale("router.scale", seen, static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.hidden))));
  const ValueId scores = r.linear("router", seen, "router.proj", c.experts.count, c.hidden);
  const ValueId h = r.norm("experts_norm", x, "pre_feedforward_layernorm_2");
  const ValueId y = r.experts("experts", h, scores, "router.per_expert_scale");
  return r.norm("experts_post_norm", y, "post_feedforward_layernorm_2");
}

}  // namespace

Result<ModelConfig> parse_gemma4(const ModelSource& source) {
  ASSIGN_OR_RETURN(ModelConfig c, parse_dense(source, {.tied_head = true,
                                                       .head_dim = 256,
                                                       .activation = "gelu_pytorch_tanh",
                                                       .softcaps = true,
                                                       .own_layers = true,
                                                       .experts = true}));
  set_gemma(source, &c);
  c.norms_less_one = false;
  c.attention_scale = 1;
  RETURN_IF_ERROR(parse_windows(source, WindowRule::kPattern, &c, {.interval = 6, .size = 512}));
  const Status read =
      source.kind() == SourceKind::kGguf ? read_gguf(source, &c) : read_hf(*source.config(), &c);
  if (!read.ok()) return read.with_context(source.path());
  RETURN_IF_ERROR(read_experts(source, &c));
  return c;
}

Result<Graph> build_gemma4(const ModelConfig& c) {
  DenseRecorder r(c);
  ValueId x = r.embed();
  const ValueId inputs = c.layer_input > 0 ? record_layer_inputs(r, c, x) : kNone;
  for (int32_t l = 0; l < c.layers; ++l) {
    r.begin_layer(l);
    const LayerShape s = r.shape();
    const ValueId h = r.norm("attn_norm", x, "input_layernorm");
    ValueId q = r.linear("attn.q", h, "self_attn.q_proj", r.q_width(), c.hidden, c.qkv_bias);
    q = r.head_norm("attn.q_norm", q, "self_attn.q_norm");
    q = r.rotate("attn.q_rope", q, c.heads);
    ValueId a = kNone;
    if (l >= c.layers - c.shared_kv_layers) {
      a = r.borrow("attn", q);
    } else {
      ValueId k = r.linear("attn.k", h, "self_attn.k_proj", r.kv_width(), c.hidden, c.qkv_bias);
      ValueId v = c.keys_are_values[static_cast<size_t>(l)]
                      ? k
                      : r.linear("attn.v", h, "self_attn.v_proj", r.kv_width(), c.hidden, c.qkv_bias);
      v = r.bare_head_norm("attn.v_norm", v);
      k = r.head_norm("attn.k_norm", k, "self_attn.k_norm");
      k = r.rotate("attn.k_rope", k, s.kv_heads);
      a = r.attend("attn", q, k, v);
    }
    const ValueId o = r.linear("attn.o", a, "self_attn.o_proj", c.hidden, r.q_width(), c.output_bias);
    x = r.add("attn_residual", x, r.norm("attn_post_norm", o, "post_attention_layernorm"));

    const ValueId m = r.norm("mlp_norm", x, "pre_feedforward_layernorm");
    const ValueId gate = r.linear("mlp.gate", m, "mlp.gate_proj", s.ffn, c.hidden);
    const ValueId up = r.linear("mlp.up", m, "mlp.up_proj", s.ffn, c.hidden);
    const ValueId y = r.gated_gelu("mlp.act", gate, up);
    ValueId down = r.linear("mlp.down", y, "mlp.down_proj", c.hidden, s.ffn);
    if (c.experts.count > 0) {
      down = r.norm("mlp_own_norm", down, "post_feedforward_layernorm_1");
      down = r.add("experts_sum", down, record_experts(r, c, x));
    }
    x = r.add("mlp_residual", x, r.norm("mlp_post_norm", down, "post_feedforward_layernorm"));

    if (inputs != kNone) x = r.add("input_residual", x, record_layer_input(r, c, x, inputs, l));
    x = r.multiply("layer_scale", x, "layer_scalar", 1);
  }
  return std::move(r).finish(x);
}

}  // namespace invar
