#include "format/gguf_names.h"

#include <gtest/gtest.h>

namespace invar {
namespace {

TEST(GgufNames, dense_decoder_names_become_canonical) {
  EXPECT_EQ(canonical_name("token_embd.weight", "llama"), "model.embed_tokens.weight");
  EXPECT_EQ(canonical_name("output_norm.weight", "llama"), "model.norm.weight");
  EXPECT_EQ(canonical_name("output.weight", "llama"), "lm_head.weight");
  EXPECT_EQ(canonical_name("blk.0.attn_q.weight", "llama"), "model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(canonical_name("blk.17.attn_k.bias", "llama"), "model.layers.17.self_attn.k_proj.bias");
  EXPECT_EQ(canonical_name("blk.3.attn_q_norm.weight", "llama"), "model.layers.3.self_attn.q_norm.weight");
  EXPECT_EQ(canonical_name("blk.3.ffn_norm.weight", "llama"),
            "model.layers.3.post_attention_layernorm.weight");
  EXPECT_EQ(canonical_name("blk.3.ffn_down.weight", "llama"), "model.layers.3.mlp.down_proj.weight");
}

TEST(GgufNames, some_names_depend_on_the_architecture) {
  const auto name = [](const char* gguf, const char* architecture) {
    return canonical_name(std::string("blk.1.") + gguf + ".weight", architecture).substr(15);
  };
  EXPECT_EQ(name("ffn_norm", "gemma2"), "pre_feedforward_layernorm.weight");
  EXPECT_EQ(name("post_attention_norm", "gemma3"), "post_attention_layernorm.weight");
  EXPECT_EQ(name("post_attention_norm", "glm4"), "post_self_attn_layernorm.weight");
  EXPECT_EQ(name("ffn_norm", "glm4"), "post_attention_layernorm.weight");
  EXPECT_EQ(name("post_ffw_norm", "olmo2"), "post_feedforward_layernorm.weight");
  EXPECT_EQ(name("ffn_up", "phi3"), "mlp.gate_up_proj.weight");
  EXPECT_EQ(name("ffn_up", "starcoder2"), "mlp.c_fc.weight");
  EXPECT_EQ(name("ffn_up", "llama"), "mlp.up_proj.weight");
  EXPECT_EQ(canonical_name("blk.0.attn_qkv.weight", "llama"), "blk.0.attn_qkv.weight");
}

TEST(GgufNames, tensors_of_experts_become_canonical) {
  EXPECT_EQ(canonical_name("blk.2.ffn_gate_exps.weight", "qwen3moe"),
            "model.layers.2.mlp.experts.gate_proj.weight");
  EXPECT_EQ(canonical_name("blk.2.ffn_down_exps.bias", "gpt-oss"),
            "model.layers.2.mlp.experts.down_proj.bias");
  EXPECT_EQ(canonical_name("blk.2.ffn_up_exps.weight", "llama"),
            "model.layers.2.block_sparse_moe.experts.w3.weight");
  EXPECT_EQ(canonical_name("blk.2.attn_sinks.weight", "gpt-oss"), "model.layers.2.self_attn.sinks");
  EXPECT_EQ(canonical_name("blk.2.exp_probs_b.bias", "glm4moe"),
            "model.layers.2.mlp.gate.e_score_correction_bias");
  EXPECT_EQ(canonical_name("blk.x.attn_sinks.weight", "gpt-oss"), "blk.x.attn_sinks.weight");
}

TEST(GgufNames, experts_may_have_tensors_of_their_own) {
  EXPECT_EQ(canonical_name("blk.31.ffn_gate.7.weight", "llama"),
            "model.layers.31.block_sparse_moe.experts.7.w1.weight");
  EXPECT_EQ(canonical_name("blk.2.ffn_down.0.bias", "qwen3moe"),
            "model.layers.2.mlp.experts.0.down_proj.bias");
  for (const char* name : {"blk.0.ffn_norm.3.weight", "blk.0.ffn_up.x.weight", "blk.0.ffn_up..weight",
                           "blk.0.7.weight", "blk.0.ffn_up.1.2.weight", "blk.0.ffn_up_exps.1.weight",
                           "blk.0.ffn_up.3.scale", "blk.x.ffn_up.3.weight"})
    EXPECT_EQ(canonical_name(name, "llama"), name);
}

TEST(GgufNames, streams_of_gemma3n_become_canonical) {
  EXPECT_EQ(canonical_name("altup_unembd_proj.weight", "gemma3n"), "model.altup_unembed_projections.weight");
  EXPECT_EQ(canonical_name("blk.4.altup_correct_scale.weight", "gemma3n"),
            "model.layers.4.altup.correct_output_scale");
  EXPECT_EQ(canonical_name("blk.4.laurel_r.weight", "gemma3n"), "model.layers.4.laurel.linear_right.weight");
  EXPECT_EQ(canonical_name("blk.4.inp_gate.weight", "gemma3n"), "model.layers.4.per_layer_input_gate.weight");
  EXPECT_EQ(canonical_name("blk.4.inp_gate.weight", "gemma3"), "blk.4.inp_gate.weight");
}

TEST(GgufNames, names_without_a_rule_stay_as_they_are) {
  for (const char* name :
       {"rope_freqs.weight", "blk.0.ffn_gate_norm.weight", "blk.x.attn_q.weight", "blk..attn_q.weight",
        "blk.0.attn_q.scale", "blk.0", "output", "", ".", "blk.0.attn_q"})
    EXPECT_EQ(canonical_name(name, "llama"), name);
}

}  // namespace
}  // namespace invar
