#include "format/gguf_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

namespace invar {
namespace {

struct Rule {
  std::string_view gguf, canonical;
};
constexpr Rule kTop[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"per_layer_token_embd", "model.embed_tokens_per_layer"},
    {"per_layer_model_proj", "model.per_layer_model_projection"},
    {"per_layer_proj_norm", "model.per_layer_projection_norm"},
    {"altup_proj", "model.altup_projections"},
    {"altup_unembd_proj", "model.altup_unembed_projections"},
};
constexpr Rule kLayer[] = {
    {"attn_norm", "input_layernorm"},       {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},         {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},          {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},          {"attn_rot_embd", "self_attn.rotary_emb.inv_freq"},
    {"ffn_gate_inp", "mlp.gate"},           {"ffn_gate_exps", "mlp.experts.gate_proj"},
    {"ffn_up_exps", "mlp.experts.up_proj"}, {"ffn_down_exps", "mlp.experts.down_proj"},
};

// Names whose suffix is not the canonical one's.
constexpr Rule kWhole[] = {
    {"attn_sinks.weight", "self_attn.sinks"},
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
    {"layer_output_scale.weight", "layer_scalar"},
    {"ffn_gate_inp.scale", "router.scale"},
    {"ffn_down_exps.scale", "router.per_expert_scale"},
    {"ffn_gate_up_exps.weight", "experts.gate_up_proj"},
    {"altup_correct_scale.weight", "altup.correct_output_scale"},
};

// Names that mean something else, or something at all, in some architectures only.
struct Exception {
  std::string_view architectures;  // with blanks between
  Rule rule;
};
constexpr Exception kExceptions[] = {
    {"gemma2 gemma3 gemma3n gemma4", {"post_attention_norm", "post_attention_layernorm"}},
    {"gemma2 gemma3 gemma3n gemma4", {"ffn_norm", "pre_feedforward_layernorm"}},
    {"gemma2 gemma3 gemma3n gemma4", {"post_ffw_norm", "post_feedforward_layernorm"}},
    {"gemma3n gemma4", {"inp_gate", "per_layer_input_gate"}},
    {"gemma3n gemma4", {"proj", "per_layer_projection"}},
    {"gemma3n gemma4", {"post_norm", "post_per_layer_input_norm"}},
    {"gemma3n", {"altup_correct_coef", "altup.correction_coefs"}},
    {"gemma3n", {"altup_predict_coef", "altup.prediction_coefs"}},
    {"gemma3n", {"altup_router", "altup.modality_router"}},
    {"gemma3n", {"altup_router_norm", "altup.router_norm"}},
    {"gemma3n", {"laurel_l", "laurel.linear_left"}},
    {"gemma3n", {"laurel_r", "laurel.linear_right"}},
    {"gemma3n", {"laurel_post_norm", "laurel.post_laurel_norm"}},
    {"gemma4", {"post_ffw_norm_1", "post_feedforward_layernorm_1"}},
    {"gemma4", {"post_ffw_norm_2", "post_feedforward_layernorm_2"}},
    {"gemma4", {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"}},
    {"gemma4", {"ffn_gate_inp", "router.proj"}},
    {"gemma4", {"ffn_down_exps", "experts.down_proj"}},
    {"glm4", {"post_attention_norm", "post_self_attn_layernorm"}},
    {"glm4", {"post_ffw_norm", "post_mlp_layernorm"}},
    {"glm4 phi3", {"ffn_up", "mlp.gate_up_proj"}},
    {"glm4moe gpt-oss olmo2", {"post_attention_norm", "post_attention_layernorm"}},
    {"glm4moe", {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"}},
    {"glm4moe", {"ffn_up_shexp", "mlp.shared_experts.up_proj"}},
    {"glm4moe", {"ffn_down_shexp", "mlp.shared_experts.down_proj"}},
    {"gpt-oss", {"ffn_gate_inp", "mlp.router"}},
    {"llama", {"ffn_gate_inp", "block_sparse_moe.gate"}},
    {"llama", {"ffn_gate_exps", "block_sparse_moe.experts.w1"}},
    {"llama", {"ffn_up_exps", "block_sparse_moe.experts.w3"}},
    {"llama", {"ffn_down_exps", "block_sparse_moe.experts.w2"}},
    {"olmo2", {"post_ffw_norm", "post_feedforward_layernorm"}},
    {"phi3", {"attn_qkv", "self_attn.qkv_proj"}},
    {"qwen2moe", {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"}},
    {"qwen2moe", {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"}},
    {"qwen2moe", {"ffn_up_shexp", "mlp.shared_expert.up_proj"}},
    {"qwen2moe", {"ffn_down_shexp", "mlp.shared_expert.down_proj"}},
    {"starcoder2", {"ffn_up", "mlp.c_fc"}},
    {"starcoder2", {"ffn_down", "mlp.c_proj"}},
};

template <size_t n>
std::string_view lookup(const Rule (&rules)[n], std::string_view name) {
  for (const Rule& rule : rules)
    if (rule.gguf == name) return rule.canonical;
  return {};
}

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_listed(std::string_view word, std::string_view list) {
  return fmt::format(" {} ", list).find(fmt::format(" {} ", word)) != std::string::npos;
}

std::string lookup_layer(std::string_view architecture, std::string_view name) {
  // Before experts were stacked each had tensors of its own: "ffn_gate.3".
  if (const size_t dot = name.rfind('.'); dot != std::string_view::npos && is_number(name.substr(dot + 1))) {
    const std::string stack = lookup_layer(architecture, fmt::format("{}_exps", name.substr(0, dot)));
    const size_t last = stack.rfind('.');
    if (last == std::string::npos) return {};
    return fmt::format("{}.{}{}", stack.substr(0, last), name.substr(dot + 1), stack.substr(last));
  }
  for (const Exception& e : kExceptions)
    if (e.rule.gguf == name && is_listed(architecture, e.architectures)) return std::string(e.rule.canonical);
  return std::string(lookup(kLayer, name));
}

// Names that may stand for a part of a layer, those of the architecture first.
std::vector<std::string_view> candidates(std::string_view architecture, std::string_view part) {
  std::vector<std::string_view> names;
  for (const Exception& e : kExceptions)
    if (is_listed(architecture, e.architectures) && e.rule.canonical == part) names.push_back(e.rule.gguf);
  for (const Rule& rule : kLayer)
    if (rule.canonical == part) names.push_back(rule.gguf);
  return names;
}

}  // namespace

std::string canonical_name(std::string_view gguf_name, std::string_view architecture) {
  const size_t dot = gguf_name.rfind('.');
  if (dot == std::string_view::npos) return std::string(gguf_name);
  const std::string_view stem = gguf_name.substr(0, dot), suffix = gguf_name.substr(dot);
  const bool usual = suffix == ".weight" || suffix == ".bias";
  if (const std::string_view top = lookup(kTop, stem); usual && !top.empty())
    return fmt::format("{}{}", top, suffix);
  if (!stem.starts_with("blk.")) return std::string(gguf_name);
  const size_t after = stem.find('.', 4);
  if (after == std::string_view::npos) return std::string(gguf_name);
  const std::string_view layer = stem.substr(4, after - 4);
  const std::string part = lookup_layer(architecture, stem.substr(after + 1));
  const bool number = is_number(layer);
  const std::string_view whole = lookup(kWhole, gguf_name.substr(after + 1));
  if (!whole.empty() && number) return fmt::format("model.layers.{}.{}", layer, whole);
  if (part.empty() || !usual || !number) return std::string(gguf_name);
  const bool bare = part == "experts.down_proj";  // all experts' in one, which has no suffix there
  return fmt::format("model.layers.{}.{}{}", layer, part, bare ? "" : suffix);
}

std::string gguf_name(std::string_view canonical, std::string_view architecture) {
  const auto checked = [&](std::string name) {
    return canonical_name(name, architecture) == canonical ? name : std::string();
  };
  constexpr std::string_view kPrefix = "model.layers.";
  const bool has_suffix = canonical.ends_with(".weight") || canonical.ends_with(".bias");
  const size_t dot = has_suffix ? canonical.rfind('.') : canonical.size();
  const std::string_view suffix = has_suffix ? canonical.substr(dot) : ".weight";
  for (const Rule& rule : kTop)
    if (rule.canonical == canonical.substr(0, dot)) return checked(fmt::format("{}{}", rule.gguf, suffix));
  const size_t part =
      canonical.starts_with(kPrefix) ? canonical.find('.', kPrefix.size()) : std::string::npos;
  if (part == std::string::npos) return "";
  const std::string_view layer = canonical.substr(kPrefix.size(), part - kPrefix.size());
  for (const Rule& rule : kWhole)
    if (rule.canonical == canonical.substr(part + 1))
      return checked(fmt::format("blk.{}.{}", layer, rule.gguf));
  if (dot <= part) return "";
  for (const std::string_view stem : candidates(architecture, canonical.substr(part + 1, dot - part - 1)))
    if (std::string name = checked(fmt::format("blk.{}.{}{}", layer, stem, suffix)); !name.empty())
      return name;
  return "";
}

}  // namespace invar
