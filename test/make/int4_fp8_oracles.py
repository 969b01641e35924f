"""Makes tiny Llama folders quantized as GPTQ, AWQ, FP8 and NVFP4, with float64 logits over the dequantized weights.

usage: int4_fp8_oracles.py OUT [NAME]      (writes OUT/NAME/{config.json,model.safetensors,golden.json,golden.safetensors})

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
    return {stem + ".weight": ("F8_E4M3", nearest_e4m3(w / wide)), stem + ".weight_scale_inv": ("F32", scale)}


def from_fp8(t, stem, block):
    wide = t[stem + ".weight_scale_inv"][1].repeat(block, 0).repeat(block, 1)
    return (e4m3_values()[t[stem + ".weight"][1]] * wide).astype(np.float32)


def nearest_e4m3(x):
    table = e4m3_values()
    order = np.argsort(np.where(np.isnan(table), np.inf, table), kind="stable")[:254]
    at = np.clip(np.searchsorted(table[order], x), 1, 253)
    return np.where(np.abs(table[order[at]] - x) < np.abs(table[order[at - 1]] - x), order[at], order[at - 1]).astype(np.uint8)


def fp8_rows(w, stem):
    scale = fo.to_bf16(np.abs(w).max(1, keepdims=True) / 448)
    return {stem + ".weight": ("F8_E4M3", nearest_e4m3(w / fo.from_bf16(scale))), stem + ".weight_scale": ("BF16", scale)}


def from_fp8_rows(t, stem):
    return (e4m3_values()[t[stem + ".weight"][1]] * FROM_BF16(t[stem + ".weight_scale"][1])).astype(np.float32)


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def nvfp4(w, stem):
    """A divisor per matrix, E4M3 scales per 16 columns, two codes to a byte, the first in the low half."""
    n, k = w.shape
    divisor = np.float32(448 * 6 / np.abs(w).max())
    groups = w.reshape(n, k // 16, 16)
    scale = nearest_e4m3(np.abs(groups).max(-1) / 6 * divisor)
    wide = e4m3_values()[scale][..., None] / divisor
    q = np.abs(groups[..., None] / np.where(wide == 0, 1, wide)[..., None] - E2M1).argmin(-1).reshape(n, k // 2, 2).astype(np.uint8)
    return {
        stem + ".weight_packed": ("U8", q[..., 0] | q[..., 1] << 4), stem + ".weight_scale": ("F8_E4M3", scale),
        stem + ".weight_global_scale": ("F32", np.array([divisor], np.float32)),
        stem + ".input_global_scale": ("F32", np.array([100], np.float32))}


def from_nvfp4(t, stem):
    """Exact values of scale times code, then one rounding by the factor."""
    packed = t[stem + ".weight_packed"][1]
    q = np.stack([packed & 15, packed >> 4], -1).reshape(len(packed), -1, 16)
    factor = np.float32(1) / t[stem + ".weight_global_scale"][1][0]
    return (E2M1[q] * e4m3_values()[t[stem + ".weight_scale"][1]][..., None] * factor).reshape(len(packed), -1).astype(np.float32)


class RoundsInput:
    """A weight whose input is rounded to 8 bits per 32 columns before the product, as engines with int8 activations do.
    order: in which the columns form these groups."""
    __array_ufunc__ = None

    def __init__(self, w, order=None):
        order = np.arange(w.shape[1]) if order is None else order
        self.w, self.T, self.order = w.astype(np.float64)[:, order], self, order

    def astype(self, _):
        return self

    def __rmatmul__(self, x):
        g = x[:, self.order].reshape(len(x), -1, 32)
        s = np.abs(g).max(-1, keepdims=True) / 127
        return (np.round(g / np.where(s == 0, 1, s)) * s).reshape(x.shape) @ self.w.T


def kl(p, q):
    p, q = (v - v.max(-1, keepdims=True) for v in (p, q))
    p, q = (v - np.log(np.exp(v).sum(-1, keepdims=True)) for v in (p, q))
    return (np.exp(p) * (p - q)).sum(-1)


def make(name, method, out):
    rng = np.random.default_rng(5)
    shape = {**CONFIG, "num_hidden_layers": 1} if method["quant_method"] == "compressed-tensors" else CONFIG
    config = {**shape, "quantization_config": method}
    kind, group = method["quant_method"], method.get("group_size", 64)
    tensors, dense, order = {}, {}, {}
    for t, h in fo.weights(name, shape).items():
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
            order[t] = np.argsort(groups, kind="stable")
            made, read = gptq(w, stem, groups, method["sym"]), from_gptq
        elif kind == "awq":
            made, read = awq(w, stem, groups), lambda a, s: from_awq(a, s, group)
        elif kind == "fp8":
            made, read = fp8(w, stem, 64), lambda a, s: from_fp8(a, s, 64)
        elif method["format"] == "float-quantized":
            made, read = fp8_rows(w, stem), from_fp8_rows
        else:
            made, read = nvfp4(w, stem), from_nvfp4
        tensors.update(made)
        dense[t] = read(made, stem)
        assert np.abs(dense[t] - w).max() < 0.25 * np.abs(w).max(), t
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    json.dump(config, open(folder + "/config.json", "w"), indent=1)
    fo.save(folder + "/model.safetensors", tensors)
    fo.from_bf16 = lambda values: values  # the weights are numbers by now
    golden, arrays = {"name": name, "reference": "test/make/int4_fp8_oracles.py, float64", "sequences": []}, {}
    for i, n in enumerate((24, 70)):
        ids = [int(x) for x in rng.integers(3, CONFIG["vocab_size"], n)]
        exact = fo.forward(shape, dense, ids, np.float64)
        p = fo.positions(n, i)
        arrays[f"s{i}.logits"] = ("F32", exact[p].astype(np.float32))
        golden["sequences"].append({"ids": ids, "positions": p})
        if "fp8" not in name:  # its matrices are float weights, with float activations
            rounded = fo.forward(shape, {t: RoundsInput(w, order.get(t)) if ".weight" in t and w.ndim == 2 and "embed" not in t else w
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
        "llama-fp8-rows": dict(quant_method="compressed-tensors", format="float-quantized"),
        "llama-nvfp4": dict(quant_method="compressed-tensors", format="nvfp4-pack-quantized"),
    }.items():
        if sys.argv[2:] in ([], [name]):
            make(name, method, sys.argv[1])
