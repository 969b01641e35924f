"""Writes the GGUF form of the NVFP4 folder that int4_fp8_oracles.py made: blocks of 64, and factors in tensors of their own.

usage: nvfp4_gguf.py FOLDER OUT.gguf        Names and row orders as the common converter has them. Needs numpy and gguf.
"""
import json, struct, sys
import numpy as np
import gguf

LAYER = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
TYPES = {"BF16": np.uint16, "U8": np.uint8, "F8_E4M3": np.uint8, "F32": np.float32}


def read(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    return {name: np.frombuffer(data[8 + n + t["data_offsets"][0] : 8 + n + t["data_offsets"][1]], TYPES[t["dtype"]]).reshape(t["shape"])
            for name, t in json.loads(data[8 : 8 + n]).items()}


def blocks(codes, scales):
    """codes [N, K] and scales [N, K / 16] -> bytes [N, K / 64 * 36]: four scales, then the halves of each 16 codes side by side"""
    n, k = codes.shape
    c = codes.reshape(n, k // 64, 4, 2, 8)
    nibbles = (c[..., 0, :] | c[..., 1, :] << 4).reshape(n, k // 64, 32)
    return np.concatenate([scales.reshape(n, k // 64, 4), nibbles], -1).reshape(n, -1).astype(np.uint8)


def main(folder, out):
    c, t = json.load(open(folder + "/config.json")), read(folder + "/model.safetensors")
    w = gguf.GGUFWriter(out, "llama")
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_key_length(c["head_dim"])
    w.add_value_length(c["head_dim"])
    w.add_rope_dimension_count(c["head_dim"])
    w.add_rope_freq_base(c["rope_theta"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_vocab_size(c["vocab_size"])
    widen = lambda h: (h.astype(np.uint32) << 16).view(np.float32)
    w.add_tensor("token_embd.weight", t["model.embed_tokens.weight"].view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    w.add_tensor("output_norm.weight", widen(t["model.norm.weight"]))
    for name in t:
        stem, _, kind = name.rpartition(".")
        if not stem.startswith("model.layers."):
            continue
        _, _, layer, part = stem.split(".", 3)
        target = f"blk.{layer}.{LAYER[part]}"
        if kind == "weight":
            w.add_tensor(target + ".weight", widen(t[name]))
        if kind != "weight_packed":
            continue
        codes = np.stack([t[name] & 15, t[name] >> 4], -1).reshape(len(t[name]), -1)
        scales = t[stem + ".weight_scale"]
        if part in ("self_attn.q_proj", "self_attn.k_proj"):
            heads = len(codes) // c["head_dim"]
            mix = lambda a: a.reshape(heads, 2, c["head_dim"] // 2, -1).swapaxes(1, 2).reshape(len(a), -1)
            codes, scales = mix(codes), mix(scales)
        w.add_tensor(target + ".weight", blocks(codes, scales), raw_dtype=gguf.GGMLQuantizationType.NVFP4)
        w.add_tensor(target + ".scale", np.float32(1) / t[stem + ".weight_global_scale"])
        w.add_tensor(target + ".input_scale", np.array([1], np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


main(*sys.argv[1:])
