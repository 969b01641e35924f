#include "format/gguf_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace invar {
namespace {

struct Rule {
  std::string_view gguf, canonical;
};
constexpr Rule kTop[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
};
constexpr Rule kLayer[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},       {"attn_rot_embd", "self_attn.rotary_emb.inv_freq"},
};

template <size_t n>
std::string_view lookup(const Rule (&rules)[n], std::string_view name) {
  for (const Rule& rule : rules)
    if (rule.gguf == name) return rule.canonical;
  return {};
}

}  // namespace

std::string canonical_name(std::string_view gguf_name) {
  const size_t dot = gguf_name.rfind('.');
  if (dot == std::string_view::npos) return std::string(gguf_name);
  const std::string_view stem = gguf_name.substr(0, dot), suffix = gguf_name.substr(dot);
  if (suffix != ".weight" && suffix != ".bias") return std::string(gguf_name);
  if (const std::string_view top = lookup(kTop, stem); !top.empty()) return fmt::format("{}{}", top, suffix);
  if (!stem.starts_with("blk.")) return std::string(gguf_name);
  const size_t after = stem.find('.', 4);
  if (after == std::string_view::npos) return std::string(gguf_name);
  const std::string_view layer = stem.substr(4, after - 4), part = lookup(kLayer, stem.substr(after + 1));
  const bool number =
      !layer.empty() && std::all_of(layer.begin(), layer.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (part.empty() || !number) return std::string(gguf_name);
  return fmt::format("model.layers.{}.{}{}", layer, part, suffix);
}

}  // namespace invar
