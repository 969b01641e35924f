// GGUF metadata of dense decoder families.

#include <fmt/format.h>

#include <cstring>

#include "base/quote.h"
#include "format/gguf.h"
#include "models/dense_config.h"
#include "models/dense_keys.h"
#include "models/rope_scaling.h"

namespace invar {
namespace {

// Metadata under the architecture's prefix.
class Keys {
 public:
  Keys(const GgufFile& file, std::string prefix, bool first_of_layers)
      : file_(file), prefix_(std::move(prefix)), first_of_layers_(first_of_layers) {}
  const GgufFile& file() const { return file_; }
  std::string key(const char* suffix) const { return prefix_ + "." + suffix; }

  // A number, or per-layer numbers that are all the same, or the first of them where a family reads them
  // itself.
  Result<std::optional<int64_t>> uniform(const char* suffix) const {
    const GgufEntry* entry = file_.find(key(suffix));
    if (entry == nullptr || entry->type != GgufType::kArray) return file_.get_int(key(suffix));
    ASSIGN_OR_RETURN(const auto values, file_.get_ints(key(suffix)));
    if (values->empty()) return corrupt(key(suffix) + " is an empty array");
    for (const int64_t v : *values)
      if (v != values->front() && !first_of_layers_)
        return unsupported(key(suffix) + " differs between layers, which this version does not support");
    return std::optional<int64_t>(values->front());
  }

  Status size(const char* suffix, int64_t most, int32_t* out, std::optional<int64_t> fallback = {}) const {
    ASSIGN_OR_RETURN(std::optional<int64_t> value, uniform(suffix));
    if (!value) value = fallback;
    if (!value) return corrupt(key(suffix) + " is missing");
    return check_size(key(suffix).c_str(), *value, most, out);
  }

  Result<std::optional<float>> number(const char* suffix) const { return file_.get_f32(key(suffix)); }

 private:
  const GgufFile& file_;
  std::string prefix_;
  bool first_of_layers_;
};

Status refuse(const std::string& what) {
  return unsupported(what + " is not supported by this version; use another model");
}

// Keys that change the mathematics; 0 (and 1 for factors) means that they do not.
Status refuse_unsupported(const Keys& keys, const DenseRules& rules) {
  std::vector<const char*> counts;
  if (!rules.experts) counts.insert(counts.end(), {"expert_count", "expert_used_count"});
  if (!rules.unused_layers) counts.push_back("nextn_predict_layers");
  for (const char* k : counts) {
    ASSIGN_OR_RETURN(const auto n, keys.uniform(k));
    if (n.value_or(0) != 0) return refuse(fmt::format("{} = {}", keys.key(k), *n));
  }
  std::vector<const char*> caps = {"attention.clamp_kqv", "attention.max_alibi_bias"};
  if (!rules.softcaps) caps.insert(caps.end(), {"attn_logit_softcapping", "final_logit_softcapping"});
  if (!rules.multipliers) caps.push_back("attention.scale");
  for (const char* k : caps) {
    ASSIGN_OR_RETURN(const auto x, keys.number(k));
    if (x.value_or(0) != 0) return refuse(fmt::format("{} = {}", keys.key(k), *x));
  }
  if (!rules.multipliers) {
    for (const char* k : {"logit_scale", "embedding_scale", "residual_scale"}) {
      ASSIGN_OR_RETURN(const auto x, keys.number(k));
      if (x.value_or(0) != 0 && *x != 1) return refuse(fmt::format("{} = {}", keys.key(k), *x));
    }
  }
  ASSIGN_OR_RETURN(const auto causal, keys.file().get_bool(keys.key("attention.causal")));
  if (!causal.value_or(true)) return refuse(keys.key("attention.causal") + " = false");
  ASSIGN_OR_RETURN(const auto parallel, keys.file().get_bool(keys.key("use_parallel_residual")));
  if (parallel.value_or(false)) return refuse(keys.key("use_parallel_residual"));
  ASSIGN_OR_RETURN(const auto type, keys.file().get_string("general.type"));
  if (type.value_or("model") != "model") return refuse("general.type " + quote(*type));
  return {};
}

Result<RopeScaling> parse_scaling(const Keys& keys) {
  RopeScaling s;
  ASSIGN_OR_RETURN(const auto type, keys.file().get_string(keys.key("rope.scaling.type")));
  ASSIGN_OR_RETURN(auto factor, keys.number("rope.scaling.factor"));
  if (!factor) {
    ASSIGN_OR_RETURN(factor, keys.number("rope.scale_linear"));  // older files
  }
  if (factor.value_or(1) == 0) factor.reset();
  const std::string_view rule = type.value_or(factor.value_or(1) == 1 ? "none" : "linear");
  if (rule == "none") return s;
  s.factor = factor.value_or(1);
  if (rule == "linear") {
    s.rule = RopeRule::kLinear;
    return s;
  }
  if (rule != "yarn") return refuse(fmt::format("{} {}", keys.key("rope.scaling.type"), quote(rule)));
  s.rule = RopeRule::kYarn;
  ASSIGN_OR_RETURN(const auto context, keys.uniform("rope.scaling.original_context_length"));
  if (!context) return corrupt(keys.key("rope.scaling.original_context_length") + " is missing");
  s.original_context = static_cast<double>(*context);
  // Factors on top of the yarn rule, whose meaning differs between programs; neutral where absent.
  for (const char* k :
       {"rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_ext_factor"}) {
    ASSIGN_OR_RETURN(const auto x, keys.number(k));
    if (x.value_or(1) != 1) return refuse(fmt::format("{} = {}", keys.key(k), *x));
  }
  ASSIGN_OR_RETURN(const auto multiplier, keys.number("rope.scaling.yarn_log_multiplier"));
  if (multiplier.value_or(0) != 0) return refuse(keys.key("rope.scaling.yarn_log_multiplier"));
  ASSIGN_OR_RETURN(const auto fast, keys.number("rope.scaling.yarn_beta_fast"));
  ASSIGN_OR_RETURN(const auto slow, keys.number("rope.scaling.yarn_beta_slow"));
  s.beta_fast = fast.value_or(32);
  s.beta_slow = slow.value_or(1);
  return s;
}

// Longrope is told by its tensors; the keys say how far the short list goes.
Status parse_longrope(const Keys& keys, const ModelSource& source, int32_t dim, ModelConfig* out,
                      RopeScaling* s) {
  const int32_t context = out->context_length;
  ASSIGN_OR_RETURN(s->short_factor, frequency_factors(source, "rope_factors_short.weight", dim, out));
  ASSIGN_OR_RETURN(s->long_factor, frequency_factors(source, "rope_factors_long.weight", dim, out));
  s->rule = RopeRule::kLongrope;
  ASSIGN_OR_RETURN(const auto original, keys.uniform("rope.scaling.original_context_length"));
  s->original_context = static_cast<double>(original.value_or(context));
  if (s->original_context > 0) s->factor = static_cast<double>(context) / s->original_context;
  ASSIGN_OR_RETURN(const auto attention, keys.number("rope.scaling.attn_factor"));
  if (attention) s->attention_factor = static_cast<double>(*attention);
  return {};
}

Status parse_rope(const Keys& keys, const ModelSource& source, const DenseRules& rules, int32_t dim,
                  ModelConfig* out) {
  ASSIGN_OR_RETURN(const auto stored, keys.number("rope.freq_base"));
  const double theta = stored ? static_cast<double>(*stored) : 10000;
  RopeScaling scaling;
  if (rules.longrope && source.find("rope_factors_long.weight") != nullptr) {
    RETURN_IF_ERROR(parse_longrope(keys, source, dim, out, &scaling));
  } else {
    ASSIGN_OR_RETURN(scaling, parse_scaling(keys));
  }
  ASSIGN_OR_RETURN(const auto divisors, frequency_factors(source, "rope_freqs.weight", dim, out));
  if (!divisors.empty() && scaling.rule != RopeRule::kPlain)
    return refuse("rope_freqs.weight together with rope scaling");
  out->rope_recipe = {theta, dim, scaling, divisors};
  ASSIGN_OR_RETURN(out->rope, make_rope(*out->rope_recipe));
  if (rules.window_theta == 0) return {};
  ASSIGN_OR_RETURN(const auto local, keys.number("rope.freq_base_swa"));
  const double other = rules.window_theta < 0 ? theta : rules.window_theta;
  ASSIGN_OR_RETURN(out->window_rope, make_rope(local ? static_cast<double>(*local) : other, dim, {}));
  return {};
}

Status parse_factors(const Keys& keys, const DenseRules& rules, ModelConfig* out) {
  const auto into = [&](const char* key, float* to) -> Status {
    ASSIGN_OR_RETURN(const auto value, keys.number(key));
    if (value.value_or(0) == 0) return {};
    return check_factor(keys.key(key).c_str(), static_cast<double>(*value), to);
  };
  if (rules.multipliers) {
    float scaling = 1;
    RETURN_IF_ERROR(into("embedding_scale", &out->embedding_multiplier));
    RETURN_IF_ERROR(into("residual_scale", &out->residual_multiplier));
    RETURN_IF_ERROR(into("attention.scale", &out->attention_scale));
    RETURN_IF_ERROR(into("logit_scale", &scaling));
    out->logits_multiplier = static_cast<float>(1.0 / static_cast<double>(scaling));
  }
  if (rules.softcaps) {
    RETURN_IF_ERROR(into("attn_logit_softcapping", &out->attention_softcap));
    RETURN_IF_ERROR(into("final_logit_softcapping", &out->logits_softcap));
  }
  return {};
}

Status parse_vocab(const Keys& keys, const ModelSource& source, ModelConfig* out) {
  const SourceTensor* table = source.find("model.embed_tokens.weight");
  if (table == nullptr || table->shape.size() != 2)
    return corrupt("tensor token_embd.weight is missing or no matrix");
  RETURN_IF_ERROR(
      check_size("the number of rows of token_embd.weight", table->shape[0], kMaxVocab, &out->vocab));
  ASSIGN_OR_RETURN(const auto vocab, keys.uniform("vocab_size"));
  if (vocab && *vocab != out->vocab)
    return corrupt(fmt::format("{} is {}, but token_embd.weight has {} rows", keys.key("vocab_size"), *vocab,
                               out->vocab));
  return {};
}

}  // namespace

Result<std::vector<float>> frequency_factors(const ModelSource& source, const char* name, int32_t dim,
                                             ModelConfig* config) {
  std::vector<float> factors;
  if (const SourceTensor* t = source.find(name); t != nullptr) {
    if (std::strcmp(t->type->name, "F32") != 0 || t->shape != std::vector<int64_t>{dim / 2})
      return corrupt(fmt::format("{} is not F32 [{}]", name, dim / 2));
    if (t->data.size() != static_cast<size_t>(dim / 2) * sizeof(float))
      return corrupt(fmt::format("{} has no values", name));
    factors.resize(t->data.size() / 4);
    std::memcpy(factors.data(), t->data.data(), t->data.size());
    config->folded_tensors.emplace_back(name);
  }
  return factors;
}

Result<ModelConfig> parse_gguf_dense(const ModelSource& source, const DenseRules& rules) {
  const Keys keys(*source.gguf(), source.architecture(), rules.own_layers);
  RETURN_IF_ERROR(refuse_unsupported(keys, rules));
  ModelConfig out;
  RETURN_IF_ERROR(keys.size("block_count", kMaxLayers, &out.layers));
  if (rules.unused_layers) {
    ASSIGN_OR_RETURN(const auto unused, keys.uniform("nextn_predict_layers"));
    if (unused.value_or(0) < 0 || unused.value_or(0) >= out.layers)
      return corrupt(fmt::format("{} is {}", keys.key("nextn_predict_layers"), *unused));
    out.unused_layers = static_cast<int32_t>(unused.value_or(0));
    out.layers -= out.unused_layers;
  }
  RETURN_IF_ERROR(keys.size("embedding_length", kMaxWidth, &out.hidden));
  RETURN_IF_ERROR(keys.size("feed_forward_length", kMaxWidth, &out.ffn));
  RETURN_IF_ERROR(keys.size("context_length", kMaxContext, &out.context_length));
  RETURN_IF_ERROR(keys.size("attention.head_count", kMaxHeads, &out.heads));
  RETURN_IF_ERROR(keys.size("attention.head_count_kv", kMaxHeads, &out.kv_heads, out.heads));
  RETURN_IF_ERROR(keys.size("attention.key_length", kMaxHeadDim, &out.head_dim, out.hidden / out.heads));
  int32_t value_dim = 0, rotated = 0;
  RETURN_IF_ERROR(keys.size("attention.value_length", kMaxHeadDim, &value_dim, out.head_dim));
  RETURN_IF_ERROR(keys.size("rope.dimension_count", kMaxHeadDim, &rotated, out.head_dim));
  if (value_dim != out.head_dim)
    return refuse(fmt::format("{} = {}", keys.key("attention.value_length"), value_dim));
  if (rotated != out.head_dim && (rules.partial_rotary == 0 || rotated > out.head_dim || rotated % 2 != 0))
    return refuse(fmt::format("{} = {}", keys.key("rope.dimension_count"), rotated));
  const char* eps_key =
      rules.layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
  ASSIGN_OR_RETURN(const auto eps, keys.number(eps_key));
  if (!eps) return corrupt(keys.key(eps_key) + " is missing");
  out.norm_eps = *eps;
  RETURN_IF_ERROR(check_shape(out));
  RETURN_IF_ERROR(parse_vocab(keys, source, &out));
  if (!rules.own_layers) RETURN_IF_ERROR(parse_rope(keys, source, rules, rotated, &out));
  RETURN_IF_ERROR(parse_factors(keys, rules, &out));
  // GGUF has no keys for these; the tensors say it, and the audit finds what does not fit.
  out.qkv_bias = source.find("model.layers.0.self_attn.q_proj.bias") != nullptr;
  out.output_bias = source.find("model.layers.0.self_attn.o_proj.bias") != nullptr;
  out.mlp_bias = source.find("model.layers.0.mlp.gate_proj.bias") != nullptr;
  out.tied_head = source.find("lm_head.weight") == nullptr;
  return out;
}

}  // namespace invar
