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
  Keys(const GgufFile& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}
  const GgufFile& file() const { return file_; }
  std::string key(const char* suffix) const { return prefix_ + "." + suffix; }

  // A number, or per-layer numbers that are all the same.
  Result<std::optional<int64_t>> uniform(const char* suffix) const {
    const GgufEntry* entry = file_.find(key(suffix));
    if (entry == nullptr || entry->type != GgufType::kArray) return file_.get_int(key(suffix));
    ASSIGN_OR_RETURN(const auto values, file_.get_ints(key(suffix)));
    if (values->empty()) return corrupt(key(suffix) + " is an empty array");
    for (const int64_t v : *values)
      if (v != values->front())
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
};

Status refuse(const std::string& what) {
  return unsupported(what + " is not supported by this version; use another model");
}

// Keys that change the mathematics; 0 (and 1 for factors) means that they do not.
Status refuse_unsupported(const Keys& keys) {
  for (const char* k : {"expert_count", "expert_used_count", "nextn_predict_layers"}) {
    ASSIGN_OR_RETURN(const auto n, keys.uniform(k));
    if (n.value_or(0) != 0) return refuse(fmt::format("{} = {}", keys.key(k), *n));
  }
  for (const char* k : {"attn_logit_softcapping", "final_logit_softcapping", "attention.clamp_kqv",
                        "attention.max_alibi_bias", "attention.scale"}) {
    ASSIGN_OR_RETURN(const auto x, keys.number(k));
    if (x.value_or(0) != 0) return refuse(fmt::format("{} = {}", keys.key(k), *x));
  }
  for (const char* k : {"logit_scale", "embedding_scale", "residual_scale"}) {
    ASSIGN_OR_RETURN(const auto x, keys.number(k));
    if (x.value_or(0) != 0 && *x != 1) return refuse(fmt::format("{} = {}", keys.key(k), *x));
  }
  ASSIGN_OR_RETURN(const auto causal, keys.file().get_bool(keys.key("attention.causal")));
  if (!causal.value_or(true)) return refuse(keys.key("attention.causal") + " = false");
  ASSIGN_OR_RETURN(const auto parallel, keys.file().get_bool(keys.key("use_parallel_residual")));
  if (parallel.value_or(false)) return refuse(keys.key("use_parallel_residual"));
  ASSIGN_OR_RETURN(const auto type, keys.file().get_string("general.type"));
  if (type.value_or("model") != "model") return refuse("general.type " + quote(*type));
  ASSIGN_OR_RETURN(const auto parts, keys.file().get_int("split.count"));
  if (parts.value_or(1) > 1)
    return unsupported(fmt::format("the model is split over {} files; merge them into one", *parts));
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

Status parse_rope(const Keys& keys, const ModelSource& source, ModelConfig* out) {
  ASSIGN_OR_RETURN(const auto theta, keys.number("rope.freq_base"));
  ASSIGN_OR_RETURN(const RopeScaling scaling, parse_scaling(keys));
  std::vector<float> divisors;
  if (const SourceTensor* t = source.find("rope_freqs.weight"); t != nullptr) {
    if (std::strcmp(t->type->name, "F32") != 0 || t->shape != std::vector<int64_t>{out->head_dim / 2})
      return corrupt(fmt::format("rope_freqs.weight is not F32 [{}]", out->head_dim / 2));
    divisors.resize(t->data.size() / 4);
    std::memcpy(divisors.data(), t->data.data(), t->data.size());
    if (scaling.rule != RopeRule::kPlain) return refuse("rope_freqs.weight together with rope scaling");
  }
  ASSIGN_OR_RETURN(out->rope, make_rope(theta.value_or(10000), out->head_dim, scaling, divisors));
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

Result<ModelConfig> parse_gguf_dense(const ModelSource& source) {
  const Keys keys(*source.gguf(), source.architecture());
  RETURN_IF_ERROR(refuse_unsupported(keys));
  ModelConfig out;
  RETURN_IF_ERROR(keys.size("block_count", kMaxLayers, &out.layers));
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
  if (rotated != out.head_dim)
    return refuse(fmt::format("{} = {}", keys.key("rope.dimension_count"), rotated));
  ASSIGN_OR_RETURN(const auto eps, keys.number("attention.layer_norm_rms_epsilon"));
  if (!eps) return corrupt(keys.key("attention.layer_norm_rms_epsilon") + " is missing");
  out.rms_eps = *eps;
  RETURN_IF_ERROR(check_shape(out));
  RETURN_IF_ERROR(parse_vocab(keys, source, &out));
  RETURN_IF_ERROR(parse_rope(keys, source, &out));
  // GGUF has no keys for these; the tensors say it, and the audit finds what does not fit.
  out.qkv_bias = source.find("model.layers.0.self_attn.q_proj.bias") != nullptr;
  out.output_bias = source.find("model.layers.0.self_attn.o_proj.bias") != nullptr;
  out.mlp_bias = source.find("model.layers.0.mlp.gate_proj.bias") != nullptr;
  out.tied_head = source.find("lm_head.weight") == nullptr;
  return out;
}

}  // namespace invar
