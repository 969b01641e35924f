"""Makes tiny random models, with float64 logits, of families that have no outside oracle: gemma, minicpm, qwen2_moe,
starcoder2.

usage: family_oracles.py OUT        (writes OUT/NAME/{config.json,model.safetensors,golden.json,golden.safetensors})

The forward pass below is written from the families' published definitions and shares nothing with the engine. With float64
it gives the golden; with float32 (numpy's own order of sums) the distance that "a plain float32 engine" has from it.
Needs numpy.
"""
import hashlib, json, os, struct, sys
import numpy as np

FAMILIES = {
    "gemma-geglu": dict(
        model_type="gemma", hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=1, head_dim=32, vocab_size=480, max_position_embeddings=512, rms_norm_eps=1e-6,
        rope_theta=10000.0, hidden_act="gelu", hidden_activation=None, attention_bias=False),
    "minicpm-scaled": dict(
        model_type="minicpm", hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=480, max_position_embeddings=512, rms_norm_eps=1e-5, rope_theta=10000.0,
        hidden_act="silu", scale_emb=6, scale_depth=1.4, dim_model_base=32, tie_word_embeddings=True),
    "qwen2-moe-shared": dict(
        model_type="qwen2_moe", hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=480, max_position_embeddings=512, rms_norm_eps=1e-6, rope_theta=1000000.0,
        hidden_act="silu", num_experts=6, num_experts_per_tok=3, moe_intermediate_size=32,
        shared_expert_intermediate_size=64, norm_topk_prob=False, decoder_sparse_step=1, mlp_only_layers=[0]),
    "starcoder2-layernorm": dict(
        model_type="starcoder2", hidden_size=64, intermediate_size=192, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=480, max_position_embeddings=512, norm_epsilon=1e-5, norm_type="layer_norm",
        rope_theta=100000.0, hidden_act="gelu_pytorch_tanh", use_bias=True, sliding_window=21),
}


def to_bf16(x):
    u = np.asarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(h):
    return (h.astype(np.uint32) << 16).view(np.float32)


def save(path, arrays):
    """arrays: name -> (dtype, numpy array)"""
    head, at = {}, 0
    for name, (dtype, a) in arrays.items():
        head[name] = {"dtype": dtype, "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, a in arrays.values():
            f.write(np.ascontiguousarray(a).tobytes())


def shapes(c):
    """Tensor names and shapes of a checkpoint."""
    h, f, d = c["hidden_size"], c["intermediate_size"], head_dim(c)
    q, kv, star = c["num_attention_heads"] * d, c["num_key_value_heads"] * d, c["model_type"] == "starcoder2"
    out = {"model.embed_tokens.weight": (c["vocab_size"], h), "model.norm.weight": (h,)}
    if star:
        out["model.norm.bias"] = (h,)
    def gated(stem, f):
        return {stem + "gate_proj": (f, h), stem + "up_proj": (f, h), stem + "down_proj": (h, f)}

    for l in range(c["num_hidden_layers"]):
        p = f"model.layers.{l}."
        mlp = {"mlp.c_fc": (f, h), "mlp.c_proj": (h, f)} if star else gated("mlp.", f)
        if has_experts(c, l):
            mlp = {"mlp.gate": (c["num_experts"], h), "mlp.shared_expert_gate": (1, h),
                   **gated("mlp.shared_expert.", c["shared_expert_intermediate_size"])}
            for e in range(c["num_experts"]):
                mlp |= gated(f"mlp.experts.{e}.", c["moe_intermediate_size"])
        for name, shape in {"self_attn.q_proj": (q, h), "self_attn.k_proj": (kv, h), "self_attn.v_proj": (kv, h),
                            "self_attn.o_proj": (h, q), **mlp, "input_layernorm": (h,),
                            "post_attention_layernorm": (h,)}.items():
            out[p + name + ".weight"] = shape
            qkv = name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
            if star or (qkv and c["model_type"] == "qwen2_moe"):
                out[p + name + ".bias"] = shape[:1]
    return out


def has_experts(c, layer):
    return "num_experts" in c and layer not in c["mlp_only_layers"]


def head_dim(c):
    return c.get("head_dim", c["hidden_size"] // c["num_attention_heads"])


def weights(name, c):
    out = {}
    for tensor, shape in shapes(c).items():
        seed = int.from_bytes(hashlib.sha256(f"{name}/{tensor}".encode()).digest()[:8], "little")
        r = np.random.default_rng(seed).standard_normal(shape)
        if tensor.endswith(".bias"):
            r = 0.2 * r
        elif len(shape) == 1:  # norms; gemma stores them less one
            r = (0.0 if c["model_type"] == "gemma" else 1.0) + 0.25 * r
            if tensor == "model.norm.weight":
                r = r + 2.0
        elif "embed" in tensor:
            r = 0.15 * r
        else:
            r = (1.8 if "q_proj" in tensor or "k_proj" in tensor else 1.2) / np.sqrt(shape[-1]) * r
        out[tensor] = to_bf16(r)
    return out


def forward(c, w, ids, dtype):
    one = dtype(1)
    kind, d, n = c["model_type"], head_dim(c), len(ids)
    heads, kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
    star, gemma, mini = kind == "starcoder2", kind == "gemma", kind == "minicpm"
    eps = dtype(c.get("rms_norm_eps", c.get("norm_epsilon")))
    get = lambda t: from_bf16(w[t]).astype(dtype)

    def norm(x, t):
        if star:
            x = x - x.mean(-1, keepdims=True)
            return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * get(t + ".weight") + get(t + ".bias")
        scale = get(t + ".weight") + (one if gemma else dtype(0))
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * scale

    def linear(x, t):
        y = x @ get(t + ".weight").T
        return y + get(t + ".bias") if t + ".bias" in w else y

    def gelu(x):
        return dtype(0.5) * x * (one + np.tanh(dtype(np.sqrt(2 / np.pi)) * (x + dtype(0.044715) * x ** 3)))

    def network(x, t):
        g = linear(x, t + "gate_proj")
        g = gelu(g) if gemma else g / (one + np.exp(-g))
        return linear(g * linear(x, t + "up_proj"), t + "down_proj")

    def experts(x, t):
        e = np.exp(linear(x, t + "gate"))
        chance = e / e.sum(-1, keepdims=True)
        y = np.zeros_like(x)
        for row in range(n):
            for i in np.argsort(-chance[row], kind="stable")[: c["num_experts_per_tok"]]:
                y[row] += chance[row, i] * network(x[row : row + 1], f"{t}experts.{i}.")[0]
        share = one / (one + np.exp(-linear(x, t + "shared_expert_gate")))
        return y + share * network(x, t + "shared_expert.")

    pair = np.arange(d // 2, dtype=dtype)
    freq = dtype(c["rope_theta"]) ** (-2 * pair / dtype(d))
    angle = np.arange(n, dtype=dtype)[:, None] * freq
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]

    def rotate(x):
        a, b = x[..., : d // 2], x[..., d // 2:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    position = np.arange(n)
    seen = position[None, :] <= position[:, None]
    if c.get("sliding_window"):
        seen &= position[None, :] > position[:, None] - c["sliding_window"]

    block = dtype(c["scale_depth"] / np.sqrt(c["num_hidden_layers"])) if mini else one
    x = get("model.embed_tokens.weight")[ids]
    x = x * dtype(np.sqrt(c["hidden_size"]) if gemma else c["scale_emb"] if mini else 1)
    for l in range(c["num_hidden_layers"]):
        p = f"model.layers.{l}."
        h = norm(x, p + "input_layernorm")
        q = rotate(linear(h, p + "self_attn.q_proj").reshape(n, heads, d))
        k = rotate(linear(h, p + "self_attn.k_proj").reshape(n, kv_heads, d)).repeat(heads // kv_heads, 1)
        v = linear(h, p + "self_attn.v_proj").reshape(n, kv_heads, d).repeat(heads // kv_heads, 1)
        s = np.einsum("qhd,khd->hqk", q, k) / dtype(np.sqrt(d))
        s = np.where(seen[None], s, dtype(-np.inf))
        e = np.exp(s - s.max(-1, keepdims=True))
        a = np.einsum("hqk,khd->qhd", e / e.sum(-1, keepdims=True), v).reshape(n, heads * d)
        x = x + block * linear(a, p + "self_attn.o_proj")
        h = norm(x, p + "post_attention_layernorm")
        if star:
            y = linear(gelu(linear(h, p + "mlp.c_fc")), p + "mlp.c_proj")
        else:
            y = experts(h, p + "mlp.") if has_experts(c, l) else network(h, p + "mlp.")
        x = x + block * y
    x = norm(x, "model.norm")
    if mini:
        x = x / dtype(c["hidden_size"] / c["dim_model_base"])
    return x @ get("model.embed_tokens.weight").T


def positions(n, k):
    if k == 0:
        return list(range(n))
    return sorted(p for p in set(range(0, n, 7)) | set(range(n - 4, n)) | {15, 16, 17, 31, 32, 33, 63, 64} if p < n)


def make(name, config, out):
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    config = {**config, "tie_word_embeddings": True, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2}
    json.dump(config, open(folder + "/config.json", "w"), indent=1)
    w = weights(name, config)
    save(folder + "/model.safetensors", {t: ("BF16", a) for t, a in w.items()})
    random = np.random.default_rng(len(name))
    golden, arrays = {"name": name, "reference": "test/make/family_oracles.py, float64", "sequences": []}, {}
    for k, n in enumerate((24, 41, 80)):
        ids = [int(i) for i in random.integers(3, config["vocab_size"], n)]
        exact = forward(config, w, ids, np.float64)
        single = forward(config, w, ids, np.float32)
        p = positions(n, k)
        arrays[f"s{k}.logits"] = ("F32", exact[p].astype(np.float32))
        s = {"ids": ids, "positions": p,
             "hf_float32_vs_f64": {"max_abs": float(f"{np.abs(exact - single).max():.3e}")}}
        if k < 2:
            run, margins = list(ids), []
            for _ in range(16):
                last = forward(config, w, run, np.float64)[-1]
                top = np.sort(last)
                margins.append(round(float(top[-1] - top[-2]), 5))
                run.append(int(last.argmax()))
            s["greedy16"], s["greedy16_margin"] = run[n:], margins
        golden["sequences"].append(s)
    save(folder + "/golden.safetensors", arrays)
    json.dump(golden, open(folder + "/golden.json", "w"))
    print(name, [s["hf_float32_vs_f64"]["max_abs"] for s in golden["sequences"]],
          "smallest margin", min(min(s.get("greedy16_margin", [9])) for s in golden["sequences"]),
          "logits up to", round(float(np.abs(arrays["s0.logits"][1]).max()), 1))


if __name__ == "__main__":
    for family, settings in FAMILIES.items():
        make(family, settings, sys.argv[1])
