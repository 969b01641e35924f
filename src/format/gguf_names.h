#pragma once
// Tensor names of GGUF files -> canonical (Hugging Face) names, for the dense decoder families. What a name
// means depends on the architecture: "post_attention_norm" and "ffn_up" are several things.

#include <string>
#include <string_view>

namespace invar {

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight". A name without a rule comes back
// unchanged, so that the audit of the family can name it.
std::string canonical_name(std::string_view gguf_name, std::string_view architecture);

// The way back: what a file of this architecture calls a tensor; "" if it has no name for it.
std::string gguf_name(std::string_view canonical, std::string_view architecture);

}  // namespace invar
