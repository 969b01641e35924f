// config.json of dense decoder families.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include "base/quote.h"
#include "format/hf_config.h"
#include "models/dense_config.h"
#include "models/dense_keys.h"
#include "models/rope_scaling.h"

namespace invar {
namespace {

template <class T>
Result<T> required(Result<std::optional<T>> value, const char* key) {
  if (!value.ok()) return value.status();
  if (!value->has_value()) return corrupt(fmt::format("{} is missing", key));
  return std::move(**value);
}

template <class T>
Status optional_into(Result<std::optional<T>> value, T* out) {
  if (!value.ok()) return value.status();
  if (value->has_value()) *out = std::move(**value);
  return {};
}

Status refuse(const std::string& what, const char* remedy = "use another model") {
  return unsupported(fmt::format("{} is not supported by this version; {}", what, remedy));
}

// "gelu" of the first Gemma files stands for the tanh form, as their authors said later.
Status check_activation(const HfConfig& c, const DenseRules& rules) {
  std::string activation = rules.activation;
  RETURN_IF_ERROR(optional_into(c.get_string("hidden_act"), &activation));
  RETURN_IF_ERROR(optional_into(c.get_string("hidden_activation"), &activation));
  const bool tanh_form =
      activation == "gelu_pytorch_tanh" || activation == "gelu" || activation == "gelu_new";
  if (activation == rules.activation ||
      (rules.activation == std::string_view("gelu_pytorch_tanh") && tanh_form))
    return {};
  return refuse("hidden_act " + quote(activation),
                fmt::format("this family has {}", rules.activation).c_str());
}

Status refuse_unsupported(const HfConfig& c, const DenseRules& rules) {
  // MLX names no method.
  std::string method;
  RETURN_IF_ERROR(optional_into(c.get_string("quantization_config.quant_method"), &method));
  constexpr std::string_view kMethods[] = {"",        "gptq", "awq", "fp8", "mxfp4", "compressed-tensors",
                                           "modelopt"};
  if (std::find(std::begin(kMethods), std::end(kMethods), method) == std::end(kMethods))
    return refuse("quantization_config (" + printable(method, 100) + ")",
                  "use a file with F32, F16 or BF16, a GGUF file, MLX, GPTQ, AWQ, FP8 or NVFP4");
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok"}) {
    if (rules.experts) break;
    int64_t n = 0;
    RETURN_IF_ERROR(optional_into(c.get_int(key), &n));
    if (n > 0) return refuse(fmt::format("a mixture of experts ({} = {})", key, n));
  }
  if (!rules.softcaps)
    for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"})
      if (c.has(key)) return refuse(fmt::format("a softcap ({})", key));
  if (!rules.multipliers) {
    for (const char* key :
         {"embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"}) {
      double factor = 1;
      RETURN_IF_ERROR(optional_into(c.get_double(key), &factor));
      if (factor != 1) return refuse(fmt::format("a multiplier ({} = {})", key, factor));
    }
  }
  if (rules.window_theta == 0 && !rules.own_layers)
    for (const char* key : {"rope_parameters.full_attention", "rope_parameters.sliding_attention"})
      if (c.has(key)) return refuse(fmt::format("rope per layer type ({})", key));
  if (rules.partial_rotary == 0) {
    for (const char* key : {"partial_rotary_factor", "rope_parameters.partial_rotary_factor"}) {
      double part = 1;
      RETURN_IF_ERROR(optional_into(c.get_double(key), &part));
      if (part != 1) return refuse(fmt::format("a partial rotation ({} = {})", key, part));
    }
  }
  bool bidirectional = false;  // "vision": between the positions of an image, of which there are none
  const auto between = c.get_string("use_bidirectional_attention");
  if (!between.ok() || *between != "vision")
    RETURN_IF_ERROR(optional_into(c.get_bool("use_bidirectional_attention"), &bidirectional));
  if (bidirectional) return refuse("use_bidirectional_attention");
  return check_activation(c, rules);
}

// A number or a list. -1 stands for none in some files.
Status check_token_ids(const HfConfig& c, const char* key, int32_t vocab) {
  if (!c.has(key)) return {};
  std::vector<int64_t> ids;
  if (const auto one = c.get_int(key); one.ok()) {
    ids.push_back(**one);
  } else {
    RETURN_IF_ERROR(optional_into(c.get_ints(key), &ids));
  }
  for (const int64_t id : ids)
    if (id < -1 || id >= vocab)
      return corrupt(
          fmt::format("config.json: {} {} is outside the vocabulary of {} (vocab_size)", key, id, vocab));
  return {};
}

// That mean nothing without a type.
constexpr const char* kScalingKeys[] = {
    "factor",         "low_freq_factor", "high_freq_factor", "beta_fast",    "beta_slow",  "mscale",
    "mscale_all_dim", "truncate",        "attention_factor", "short_factor", "long_factor"};

Result<RopeScaling> parse_scaling(const HfConfig& c, const std::string& where, const DenseRules& rules,
                                  int64_t context) {
  RopeScaling s;
  ASSIGN_OR_RETURN(const bool described, c.has_members(where));
  if (!described) return s;
  std::string type = "default";
  RETURN_IF_ERROR(optional_into(c.get_string(where + ".type"), &type));
  RETURN_IF_ERROR(optional_into(c.get_string(where + ".rope_type"), &type));
  const auto number = [&](const char* key) { return c.get_double(where + "." + key); };
  const auto needed = [&](const char* key, double* out) -> Status {
    ASSIGN_OR_RETURN(*out, required(number(key), (where + "." + key).c_str()));
    return {};
  };
  if (!c.has(where + ".type") && !c.has(where + ".rope_type"))
    for (const char* key : kScalingKeys)
      if (c.has(where + "." + key))
        return corrupt(
            fmt::format("config.json: {0} has {1}, but no rope_type, without which nothing is "
                        "scaled; add the rope_type that the model was trained with, or drop {1}",
                        where, key));
  if (type == "default") return s;
  if (type == "linear") {
    s.rule = RopeRule::kLinear;
    RETURN_IF_ERROR(needed("factor", &s.factor));
    return s;
  }
  if (type == "llama3") {
    s.rule = RopeRule::kLlama3;
    RETURN_IF_ERROR(needed("factor", &s.factor));
    RETURN_IF_ERROR(needed("low_freq_factor", &s.low_freq_factor));
    RETURN_IF_ERROR(needed("high_freq_factor", &s.high_freq_factor));
    RETURN_IF_ERROR(needed("original_max_position_embeddings", &s.original_context));
    return s;
  }
  if (type == "yarn") {
    s.rule = RopeRule::kYarn;
    s.original_context = static_cast<double>(context);
    RETURN_IF_ERROR(optional_into(number("original_max_position_embeddings"), &s.original_context));
    s.factor = static_cast<double>(context) / s.original_context;
    RETURN_IF_ERROR(optional_into(number("factor"), &s.factor));
    double fast = 0, slow = 0;  // 0 stands for absent, as in the reference
    RETURN_IF_ERROR(optional_into(number("beta_fast"), &fast));
    RETURN_IF_ERROR(optional_into(number("beta_slow"), &slow));
    if (fast != 0) s.beta_fast = fast;
    if (slow != 0) s.beta_slow = slow;
    RETURN_IF_ERROR(optional_into(c.get_bool(where + ".truncate"), &s.truncate));
    ASSIGN_OR_RETURN(s.attention_factor, number("attention_factor"));
    ASSIGN_OR_RETURN(s.mscale, number("mscale"));
    ASSIGN_OR_RETURN(s.mscale_all_dim, number("mscale_all_dim"));
    return s;
  }
  if ((type == "longrope" || type == "su") && rules.longrope) {
    s.rule = RopeRule::kLongrope;
    s.original_context = static_cast<double>(context);
    RETURN_IF_ERROR(optional_into(c.get_double("original_max_position_embeddings"), &s.original_context));
    RETURN_IF_ERROR(optional_into(number("original_max_position_embeddings"), &s.original_context));
    RETURN_IF_ERROR(optional_into(number("factor"), &s.factor));
    if (s.original_context > 0) s.factor = static_cast<double>(context) / s.original_context;
    ASSIGN_OR_RETURN(s.attention_factor, number("attention_factor"));
    for (const auto& [key, list] :
         {std::pair{"short_factor", &s.short_factor}, {"long_factor", &s.long_factor}}) {
      ASSIGN_OR_RETURN(const auto values,
                       required(c.get_doubles(where + "." + key), (where + "." + key).c_str()));
      list->assign(values.begin(), values.end());
    }
    return s;
  }
  return refuse(fmt::format("{} of type {}", where, quote(type)),
                "default, linear, llama3 and yarn are supported");
}

// The rope that `where` describes; theta is the family's or the file's where it says nothing.
Result<RopeRecipe> parse_one_rope(const HfConfig& c, const std::string& where, const DenseRules& rules,
                                  double theta, const ModelConfig& config) {
  RETURN_IF_ERROR(optional_into(c.get_double(where + ".rope_theta"), &theta));
  double part = rules.partial_rotary == 0 ? 1 : rules.partial_rotary;
  RETURN_IF_ERROR(optional_into(c.get_double("partial_rotary_factor"), &part));
  RETURN_IF_ERROR(optional_into(c.get_double(where + ".partial_rotary_factor"), &part));
  if (!(part > 0 && part <= 1))
    return corrupt(fmt::format("partial_rotary_factor is {}, not between 0 and 1", part));
  ASSIGN_OR_RETURN(const RopeScaling scaling, parse_scaling(c, where, rules, config.context_length));
  return RopeRecipe{theta, static_cast<int32_t>(config.head_dim * part), scaling};
}

// One rope for the layers with a window and one for the others.
Status parse_two_ropes(const HfConfig& c, const DenseRules& rules, double theta, ModelConfig* out) {
  const std::string full = "rope_parameters.full_attention", window = "rope_parameters.sliding_attention";
  for (const std::string& where : {full, window}) {
    ASSIGN_OR_RETURN(const bool described, c.has_members(where));
    if (!described) return corrupt(fmt::format("config.json: {} is missing or empty", where));
  }
  ASSIGN_OR_RETURN(out->rope_recipe, parse_one_rope(c, full, rules, theta, *out));
  ASSIGN_OR_RETURN(const RopeRecipe other, parse_one_rope(c, window, rules, theta, *out));
  ASSIGN_OR_RETURN(out->rope, make_rope(*out->rope_recipe));
  ASSIGN_OR_RETURN(out->window_rope, make_rope(other));
  out->theta = out->rope_recipe->theta;
  out->window_theta = other.theta;
  return {};
}

Status parse_rope(const HfConfig& c, const DenseRules& rules, ModelConfig* out) {
  double theta = rules.rope_theta;
  RETURN_IF_ERROR(optional_into(c.get_double("rope_theta"), &theta));
  ASSIGN_OR_RETURN(const bool older, c.has_members("rope_scaling"));
  ASSIGN_OR_RETURN(const bool newer, c.has_members("rope_parameters"));
  if (newer && (c.has("rope_parameters.full_attention") || c.has("rope_parameters.sliding_attention"))) {
    if (older)
      return refuse("rope_scaling beside rope_parameters per layer type", "drop one of them in config.json");
    return parse_two_ropes(c, rules, theta, out);
  }
  // Where both are there, Hugging Face's classes read the older one alone.
  const std::string where = newer && !older ? "rope_parameters" : "rope_scaling";
  ASSIGN_OR_RETURN(out->rope_recipe, parse_one_rope(c, where, rules, theta, *out));
  ASSIGN_OR_RETURN(out->rope, make_rope(*out->rope_recipe));
  out->theta = out->rope_recipe->theta;
  if (rules.window_theta == 0) return {};
  out->window_theta = rules.window_theta < 0 ? out->theta : rules.window_theta;
  RETURN_IF_ERROR(optional_into(c.get_double("rope_local_base_freq"), &out->window_theta));
  auto window = make_rope(out->window_theta, out->rope.dim, {});
  if (!window.ok()) return window.status().with_context("rope_local_base_freq");
  out->window_rope = *std::move(window);
  return {};
}

Status parse_factors(const HfConfig& c, const DenseRules& rules, ModelConfig* out) {
  const auto into = [&](const char* key, float* to) -> Status {
    ASSIGN_OR_RETURN(const auto value, c.get_double(key));
    return value ? check_factor(key, *value, to) : Status();
  };
  if (rules.multipliers) {
    float scaling = 1;
    out->attention_scale = 1;
    RETURN_IF_ERROR(into("embedding_multiplier", &out->embedding_multiplier));
    RETURN_IF_ERROR(into("residual_multiplier", &out->residual_multiplier));
    RETURN_IF_ERROR(into("attention_multiplier", &out->attention_scale));
    RETURN_IF_ERROR(into("logits_scaling", &scaling));
    out->logits_multiplier = static_cast<float>(1.0 / static_cast<double>(scaling));
  }
  if (rules.softcaps) {
    RETURN_IF_ERROR(into("attn_logit_softcapping", &out->attention_softcap));
    RETURN_IF_ERROR(into("final_logit_softcapping", &out->logits_softcap));
  }
  if (rules.query_scalar) {
    double scalar = out->head_dim;
    RETURN_IF_ERROR(optional_into(c.get_double("query_pre_attn_scalar"), &scalar));
    float checked = 0;
    RETURN_IF_ERROR(check_factor("query_pre_attn_scalar", scalar, &checked));
    out->attention_scale = static_cast<float>(1.0 / std::sqrt(scalar));
  }
  return {};
}

}  // namespace

Result<ModelConfig> parse_hf_dense(const ModelSource& source, const DenseRules& rules) {
  const HfConfig& c = *source.config();
  ModelConfig out;
  const auto size = [&](const char* key, int64_t most, int32_t* to, int32_t fallback = 0) -> Status {
    const auto list = c.get_ints(key);
    if (out.layers > 0 && list.ok() && *list) {  // one for every layer
      if ((*list)->size() != static_cast<size_t>(out.layers))
        return corrupt(
            fmt::format("config.json: {} has {} numbers for {} layers", key, (*list)->size(), out.layers));
      for (const int64_t value : **list)
        if (value != (*list)->front() && !rules.own_layers)
          return refuse(fmt::format("a {} that differs between layers", key));
      return check_size(key, (*list)->front(), most, to);
    }
    if (fallback > 0 && !c.has(key)) return check_size(key, fallback, most, to);
    ASSIGN_OR_RETURN(const int64_t value, required(c.get_int(key), key));
    return check_size(key, value, most, to);
  };
  RETURN_IF_ERROR(size("num_hidden_layers", kMaxLayers, &out.layers));
  RETURN_IF_ERROR(refuse_unsupported(c, rules));
  RETURN_IF_ERROR(size("vocab_size", kMaxVocab, &out.vocab, rules.vocab));
  for (const char* key : {"bos_token_id", "eos_token_id"})
    RETURN_IF_ERROR(check_token_ids(c, key, out.vocab));
  RETURN_IF_ERROR(size("hidden_size", kMaxWidth, &out.hidden));
  RETURN_IF_ERROR(size("intermediate_size", kMaxWidth, &out.ffn));
  RETURN_IF_ERROR(size("num_attention_heads", kMaxHeads, &out.heads, rules.heads));
  RETURN_IF_ERROR(size("max_position_embeddings", kMaxContext, &out.context_length, rules.context));
  int64_t kv_heads = rules.kv_heads ? rules.kv_heads : out.heads,
          head_dim = rules.head_dim ? rules.head_dim : out.hidden / out.heads;
  RETURN_IF_ERROR(optional_into(c.get_int("num_key_value_heads"), &kv_heads));
  RETURN_IF_ERROR(check_size("num_key_value_heads", kv_heads, kMaxHeads, &out.kv_heads));
  RETURN_IF_ERROR(optional_into(c.get_int("head_dim"), &head_dim));
  RETURN_IF_ERROR(check_size("head_dim", head_dim, kMaxHeadDim, &out.head_dim));
  const char* eps_key = rules.layer_norm ? "norm_epsilon" : "rms_norm_eps";
  double eps = rules.norm_eps;
  RETURN_IF_ERROR(optional_into(c.get_double(eps_key), &eps));
  if (eps == 0 && !c.has(eps_key)) return corrupt(fmt::format("{} is missing", eps_key));
  out.norm_eps = static_cast<float>(eps);
  out.qkv_bias = rules.qkv_bias;
  if (rules.bias_keys) {
    RETURN_IF_ERROR(optional_into(c.get_bool("attention_bias"), &out.qkv_bias));
    out.output_bias = out.qkv_bias;
    RETURN_IF_ERROR(optional_into(c.get_bool("mlp_bias"), &out.mlp_bias));
  }
  if (rules.unused_layers) {
    int64_t unused = 0;
    RETURN_IF_ERROR(optional_into(c.get_int("num_nextn_predict_layers"), &unused));
    if (unused < 0 || unused > kMaxLayers)
      return corrupt(fmt::format("num_nextn_predict_layers is {}", unused));
    out.unused_layers = static_cast<int32_t>(unused);
  }
  out.tied_head = rules.tied_head;
  RETURN_IF_ERROR(optional_into(c.get_bool("tie_word_embeddings"), &out.tied_head));
  RETURN_IF_ERROR(check_shape(out));
  if (!rules.own_layers) RETURN_IF_ERROR(parse_rope(c, rules, &out));
  RETURN_IF_ERROR(parse_factors(c, rules, &out));
  return out;
}

}  // namespace invar
