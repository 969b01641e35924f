// Qwen3: every head of q and k is normalized before it rotates.

#include <fmt/format.h>

#include <cmath>

#include "graph/builder.h"
#include "models/dense_config.h"
#include "models/family.h"

namespace invar {

Result<ModelConfig> parse_qwen3(const ModelSource& source) {
  return parse_dense(source, {.head_dim = 128, .window_switch = true});
}

Result<Graph> build_qwen3(const ModelConfig& c) {
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
    q = b.rms_norm(site + "attn.q_norm", q, b.vector(name + "self_attn.q_norm.weight", c.head_dim), c.rms_eps,
                   c.head_dim);
    k = b.rms_norm(site + "attn.k_norm", k, b.vector(name + "self_attn.k_norm.weight", c.head_dim), c.rms_eps,
                   c.head_dim);
    q = b.rotate(site + "attn.q_rope", q, rope, c.heads, c.head_dim);
    k = b.rotate(site + "attn.k_rope", k, rope, c.kv_heads, c.head_dim);
    const ValueId a = b.attend(
        site + "attn", q, k, v,
        {.group = group, .heads = c.heads, .kv_heads = c.kv_heads, .head_dim = c.head_dim, .scale = scale});
    const ValueId o = linear("attn.o", a, "self_attn.o_proj", c.hidden, q_width, c.output_bias);
    x = b.add(site + "attn_residual", x, o);

    const ValueId m = norm("mlp_norm", x, "post_attention_layernorm");
    const ValueId gate = linear("mlp.gate", m, "mlp.gate_proj", c.ffn, c.hidden, false);
    const ValueId up = linear("mlp.up", m, "mlp.up_proj", c.ffn, c.hidden, false);
    const ValueId y = b.gated_silu(site + "mlp.act", gate, up);
    const ValueId down = linear("mlp.down", y, "mlp.down_proj", c.hidden, c.ffn, false);
    x = b.add(site + "mlp_residual", x, down);
  }
  x = b.select_logit_rows("logit_rows", x);
  x = b.rms_norm("final_norm", x, b.vector("model.norm.weight", c.hidden), c.rms_eps);
  const WeightId head = c.tied_head ? table : b.matrix("lm_head.weight", c.vocab, c.hidden);
  return std::move(b).finish(b.linear("head", x, head), c.vocab);
}

}  // namespace invar
