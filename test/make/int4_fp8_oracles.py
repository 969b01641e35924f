"""Makes tiny Llama folders quantized as GPTQ, AWQ and FP8, with float64 logits over the dequantized weights.

usage: int4_fp8_oracles.py OUT      (writes OUT/NAME/{config.json,model.safetensors,golden.json,golden.safetensors})

Both directions are written here from the formats' descriptions: packing, and dequantization from the packed tensors alone,
whose result the forward pass of family_oracles.py takes. The distance that rounding activations to 8 bits makes is stored
as that of a peer. No outside program took part. Needs numpy.
"""
import json, os, sys
import numpy as np
import family_oracles as fo

CONFIG = dict(
    architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=128, intermediate_size=128, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, head_dim=32, vocab_size=96, max_position_embeddings=512, rms_norm_eps=1e-5,
    rope_theta=10000.0, hidden_act="silu", tie_word_embeddings=True, torch_dtype="float16", bos_token_id=1, eos_token_id=2)
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # column of each nibble of a word


def words(nibbles):
    """[.., 8] codes -> [..] words, first in the lowest bits"""
    n = nibbles.astype(np.uint32)
    return sum(n[..., i] << np.uint32(4 * i) for i in range(8)).astype(np.uint32).view(np.int32)


def codes(packed):
    return (packed.view(np.uint32)[..., None] >> (4 * np.arange(8, dtype=np.uint32))) & 15


def quantize(w, groups, symmetric):
    """w [N, K], groups [K] -> codes [N, K], scales f16 [G, N], zeros [G, N]"""
    n, k = w.shape
    count = groups.max() + 1
    scales, zeros, q = np.zeros((count, n), np.float16), np.zeros((count, n), int), np.zeros((n, k), int)
    for g in range(count):
        part = w[:, groups == g]
        low, high = np.minimum(part.min(1), 0), np.maximum(part.max(1), 0)
        if symmetric:
            s, z = np.abs(part).max(1) / 7, np.full(n, 8)
        else:
            s = (high - low) / 15
            z = np.clip(np.round(-low / s), 1, 15).astype(int)
        scales[g], zeros[g] = s.astype(np.float16), z
        q[:, groups == g] = np.clip(np.round(part / s[:, None]) + z[:, None], 0, 15)
    return q, scales, zeros


def gptq(w, stem, groups, symmetric):
    q, scales, zeros = quantize(w, groups, symmetric)
    n, k = w.shape
    return {
        stem + ".qweight": ("I32", words(q.T.reshape(k // 8, 8, n).transpose(0, 2, 1))),
        stem + ".qzeros": ("I32", words((zeros - 1).reshape(-1, n // 8, 8))),
        stem + ".scales": ("F16", scales), stem + ".g_idx": ("I32", groups.astype(np.int32))}


def from_gptq(t, stem):
    packed, k = t[stem + ".qweight"][1], len(t[stem + ".g_idx"][1])
    q = codes(packed).transpose(0, 2, 1).reshape(k, -1)
    zeros = codes(t[stem + ".qzeros"][1]).reshape(-1, q.shape[1]).astype(int) + 1
    g = t[stem + ".g_idx"][1]
    return (t[stem + ".scales"][1][g].astype(np.float32) * (q.astype(int) - zeros[g])).T.astype(np.float32)


def awq(w, stem, groups):
    q, scales, zeros = quantize(w, groups, False)
    n, k = w.shape
    return {
        stem + ".qweight": ("I32", words(q.T.reshape(k, n // 8, 8)[..., AWQ_ORDER])),
        stem + ".qzeros": ("I32", words(zeros.reshape(-1, n // 8, 8)[..., AWQ_ORDER])), stem + ".scales": ("F16", scales)}


def from_awq(t, stem, group):
    undo = np.argsort(AWQ_ORDER)
    q = codes(t[stem + ".qweight"][1])[..., undo].reshape(len(t[stem + ".qweight"][1]), -1)
    zeros = codes(t[stem + ".qzeros"][1])[..., undo].reshape(-1, q.shape[1])
    g = np.arange(len(q)) // group
    return (t[stem + ".scales"][1][g].astype(np.float32) * (q.astype(int) - zeros[g].astype(int))).T.astype(np.float32)


def e4m3_values():
    x = np.arange(256)
    e, m = x >> 3 & 15, x & 7
    v = np.where(e == 0, m * 2.0 ** -9, (1 + m / 8) * 2.0 ** (e - 7.0))
    v[(x & 127) == 127] = np.nan
    return np.where(x >> 7 == 1, -v, v).astype(np.float32)


def fp8(w, stem, block):
    n, k = w.shape
    bands = np.abs(w).reshape(n // block, block, k // block, block).max((1, 3))
    scale = (bands / 448).astype(np.float32)
    wide = scale.repeat(block, 0).repeat(block, 1)
    table = e4m3_values()
    order = np.argsort(np.where(np.isnan(table), np.inf, table), kind="stable")[:254]
    x = (w / wide).ravel()
    at = np.clip(np.searchsorted(table[order], x), 1, 253)
    nearer = np.where(np.abs(table[order[at]] - x) < np.abs(table[order[at - 1]] - x), at, at - 1)
    return {stem + ".weight": ("F8_E4M3", order[nearer].astype(np.uint8).reshape(n, k)), stem + ".weight_scale_inv": ("F32", scale)}


def from_fp8(t, stem, block):
    wide = t[stem + ".weight_scale_inv"][1].repeat(block, 0).repeat(block, 1)
    return (e4m3_values()[t[stem + ".weight"][1]] * wide).astype(np.float32)


class RoundsInput:
    """A weight whose input is rounded to 8 bits per 32 columns before the product, as engines with int8 activations do."""
    __array_ufunc__ = None

    def __init__(self, w):
        self.w, self.T = w.astype(np.float64), self

    def astype(self, _):
        return self

    def __rmatmul__(self, x):
        g = x.reshape(len(x), -1, 32)
        s = np.abs(g).max(-1, keepdims=True) / 127
        return (np.round(g / np.where(s == 0, 1, s)) * s).reshape(x.shape) @ self.w.T


def kl(p, q):
    p, q = (v - v.max(-1, keepdims=True) for v in (p, q))
    p, q = (v - np.log(np.exp(v).sum(-1, keepdims=True)) for v in (p, q))
    return (np.exp(p) * (p - q)).sum(-1)


def make(name, method, out):
    rng = np.random.default_rng(5)
    config = {**CONFIG, "quantization_config": method}
    kind, group = method["quant_method"], method.get("group_size", 64)
    tensors, dense = {}, {}
    for t, h in fo.weights(name, CONFIG).items():
        w = fo.from_bf16(h)
        if w.ndim == 1 or "embed" in t:
            tensors[t] = ("BF16", h)
            dense[t] = w
            continue
        stem, k = t[: -len(".weight")], w.shape[1]
        groups = np.arange(k) // group
        if kind == "gptq":
            if method["desc_act"] and "layers.0" in t:
                groups = rng.permutation(groups)
            made, read = gptq(w, stem, groups, method["sym"]), from_gptq
        elif kind == "awq":
            made, read = awq(w, stem, groups), lambda a, s: from_awq(a, s, group)
        else:
            made, read = fp8(w, stem, 64), lambda a, s: from_fp8(a, s, 64)
        tensors.update(made)
        dense[t] = read(made, stem)
        assert np.abs(dense[t] - w).max() < 0.2 * np.abs(w).max(), t
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    json.dump(config, open(folder + "/config.json", "w"), indent=1)
    fo.save(folder + "/model.safetensors", tensors)
    fo.from_bf16 = lambda values: values  # the weights are numbers by now
    golden, arrays = {"name": name, "reference": "test/make/int4_fp8_oracles.py, float64", "sequences": []}, {}
    for i, n in enumerate((24, 70)):
        ids = [int(x) for x in rng.integers(3, CONFIG["vocab_size"], n)]
        exact = fo.forward(CONFIG, dense, ids, np.float64)
        p = fo.positions(n, i)
        arrays[f"s{i}.logits"] = ("F32", exact[p].astype(np.float32))
        golden["sequences"].append({"ids": ids, "positions": p})
        if kind != "fp8":  # its matrices are float weights, with float activations
            rounded = fo.forward(CONFIG, {t: RoundsInput(w) if ".weight" in t and w.ndim == 2 and "embed" not in t else w
                                          for t, w in dense.items()}, ids, np.float64)
            golden["sequences"][-1]["int8_activations_vs_f64"] = {
                "max_abs": float(f"{np.abs(rounded - exact).max():.3e}"), "max_kl": float(f"{kl(exact, rounded).max():.3e}")}
    fo.from_bf16 = FROM_BF16
    fo.save(folder + "/golden.safetensors", arrays)
    json.dump(golden, open(folder + "/golden.json", "w"))
    print(name, "logits up to", np.abs(exact).max())


FROM_BF16 = fo.from_bf16
if __name__ == "__main__":
    for name, method in {
        "llama-gptq": dict(quant_method="gptq", bits=4, group_size=32, desc_act=True, sym=False),
        "llama-gptq-sym": dict(quant_method="gptq", bits=4, group_size=64, desc_act=False, sym=True),
        "llama-awq": dict(quant_method="awq", bits=4, group_size=64, zero_point=True, version="gemm"),
        "llama-fp8": dict(quant_method="fp8", activation_scheme="dynamic", weight_block_size=[64, 64]),
    }.items():
        make(name, method, sys.argv[1])
