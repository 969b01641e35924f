#include "format/gguf_names.h"

#include <gtest/gtest.h>

namespace invar {
namespace {

TEST(GgufNames, dense_decoder_names_become_canonical) {
  EXPECT_EQ(canonical_name("token_embd.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(canonical_name("output_norm.weight"), "model.norm.weight");
  EXPECT_EQ(canonical_name("output.weight"), "lm_head.weight");
  EXPECT_EQ(canonical_name("blk.0.attn_q.weight"), "model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(canonical_name("blk.17.attn_k.bias"), "model.layers.17.self_attn.k_proj.bias");
  EXPECT_EQ(canonical_name("blk.3.attn_q_norm.weight"), "model.layers.3.self_attn.q_norm.weight");
  EXPECT_EQ(canonical_name("blk.3.ffn_norm.weight"), "model.layers.3.post_attention_layernorm.weight");
  EXPECT_EQ(canonical_name("blk.3.ffn_down.weight"), "model.layers.3.mlp.down_proj.weight");
}

TEST(GgufNames, names_without_a_rule_stay_as_they_are) {
  for (const char* name :
       {"rope_freqs.weight", "blk.0.ffn_gate_exps.weight", "blk.x.attn_q.weight", "blk..attn_q.weight",
        "blk.0.attn_q.scale", "blk.0", "output", "", ".", "blk.0.attn_q"})
    EXPECT_EQ(canonical_name(name), name);
}

}  // namespace
}  // namespace invar
