"""Writes the GGUF form of tiny safetensors models whose families have no outside GGUF oracle.

usage: family_gguf.py MODELS OUT     (MODELS/NAME/{config.json,model.safetensors} -> OUT/NAME.gguf)

Names, keys and row orders are those of the common converter: norms in F32 (Gemma's plus one), q and k rows of MiniCPM and Mixtral
with the halves of a head interleaved, fused matrices as they are, experts of a layer stacked, routers in F32. Needs numpy and gguf.
"""
import json, math, struct, sys
import numpy as np
import gguf

NAMES = ["gemma-geglu", "glm4-moe", "glm4-sandwich", "minicpm-scaled", "mixtral", "phi3-longrope", "qwen2-moe-shared",
         "qwen3-moe", "starcoder2-layernorm"]
ARCH = {"glm4_moe": "glm4moe", "mixtral": "llama", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe"}
LAYER = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.qkv_proj": "attn_qkv", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
    "post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def read_bf16(path):
    """name -> uint16 array"""
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, t in json.loads(data[8 : 8 + n]).items():
        if name != "__metadata__":
            assert t["dtype"] == "BF16"
            a, b = t["data_offsets"]
            out[name] = np.frombuffer(data[8 + n + a : 8 + n + b], np.uint16).reshape(t["shape"])
    return out


def widen(h):
    return (h.astype(np.uint32) << 16).view(np.float32)


EXPERT = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down", "w1": "gate", "w3": "up", "w2": "down"}


def stack_experts(tensors):
    """mlp.experts.E.gate_proj and so on of a layer become one tensor each."""
    out, stacks = {}, {}
    for name, x in tensors.items():
        parts = name.split(".")
        if "experts" in parts:
            i = parts.index("experts")
            stacks.setdefault(".".join(parts[:i] + [parts[i + 2]]), {})[int(parts[i + 1])] = x
        else:
            out[name] = x
    for name, experts in stacks.items():
        parts = name.split(".")
        out[f"blk.{parts[2]}.ffn_{EXPERT[parts[-1]]}_exps.weight"] = np.stack([experts[e] for e in range(len(experts))])
    return out


def gguf_name(name, arch):
    if name.startswith("blk."):
        return name
    if arch == "glm4moe" and name.endswith("post_attention_layernorm.weight"):
        return f"blk.{name.split('.')[2]}.post_attention_norm.weight"
    if name.endswith("e_score_correction_bias"):
        return f"blk.{name.split('.')[2]}.exp_probs_b.bias"
    if "shared_expert." in name or "shared_experts." in name:
        return f"blk.{name.split('.')[2]}.ffn_{EXPERT[name.split('.')[-2]]}_shexp.weight"
    stem, kind = name.rsplit(".", 1)
    if stem in TOP:
        return f"{TOP[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{LAYER[part]}.{kind}"


def add_experts(w, c):
    count = c.get("num_experts", c.get("num_local_experts", c.get("n_routed_experts")))
    if count is None:
        return
    w.add_expert_count(count)
    w.add_expert_used_count(c["num_experts_per_tok"])
    if "moe_intermediate_size" in c:
        w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    if "shared_expert_intermediate_size" in c:
        w.add_expert_shared_feed_forward_length(c["shared_expert_intermediate_size"])
    if c["model_type"] == "glm4_moe":
        w.add_expert_shared_count(c["n_shared_experts"])
        w.add_leading_dense_block_count(c["first_k_dense_replace"])
        w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        w.add_expert_weights_scale(c["routed_scaling_factor"])
        w.add_expert_weights_norm(c["norm_topk_prob"])


def interleave(rows, heads):
    """Row 2i + j of a head is its row j * half + i."""
    n = rows.shape[0] // heads
    return rows.reshape(heads, 2, n // 2, -1).swapaxes(1, 2).reshape(rows.shape)


def write(folder, out):
    c = json.load(open(folder + "/config.json"))
    arch = ARCH.get(c["model_type"], c["model_type"])
    w = gguf.GGUFWriter(out, arch)
    w.add_block_count(c["num_hidden_layers"])
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_rope_freq_base(c["rope_theta"])
    if arch == "starcoder2":
        w.add_layer_norm_eps(c["norm_epsilon"])
    else:
        w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    d = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    w.add_rope_dimension_count(int(d * c.get("partial_rotary_factor", 1)))
    if c.get("head_dim"):
        w.add_key_length(d)
        w.add_value_length(d)
    if c.get("sliding_window"):
        w.add_sliding_window(c["sliding_window"])
    add_experts(w, c)
    if arch == "minicpm":
        w.add_embedding_scale(c["scale_emb"])
        w.add_residual_scale(c["scale_depth"] / math.sqrt(c["num_hidden_layers"]))
        w.add_logit_scale(c["hidden_size"] / c["dim_model_base"])
    if arch == "phi3":
        original, context = c["original_max_position_embeddings"], c["max_position_embeddings"]
        w.add_rope_scaling_orig_ctx_len(original)
        w.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(context / original) / math.log(original)))
        for kind in ("long", "short"):
            w.add_tensor(f"rope_factors_{kind}.weight", np.array(c["rope_scaling"][kind + "_factor"], np.float32))
    for name, h in stack_experts(read_bf16(folder + "/model.safetensors")).items():
        if h.ndim == 1 or "ffn_gate_inp" in gguf_name(name, arch):
            x = widen(h).squeeze()
            w.add_tensor(gguf_name(name, arch), x + np.float32(1) if arch == "gemma" else x)
            continue
        for part, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
            if arch in ("minicpm", "llama") and part in name:
                h = interleave(h, c[heads])
        w.add_tensor(gguf_name(name, arch), np.ascontiguousarray(h).view(np.uint8), raw_shape=(*h.shape[:-1], h.shape[-1] * 2),
                     raw_dtype=gguf.GGMLQuantizationType.BF16)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    for model in NAMES:
        write(f"{sys.argv[1]}/{model}", f"{sys.argv[2]}/{model}.gguf")
        print(model)
