#!/usr/bin/env python3
"""Writes a GGUF file with the published configuration and tensor list of a real model, and random weights.

usage: make_shape.py NAME FILE [--tokenizer GGUF]    (make_shape.py --list: the names and the bytes of their files)

Each weight type has one block of random bytes, which its tensors repeat: files are as large as the real ones, and every
scale in them is small and finite. There is no tokenizer, so that what runs them gives token ids; with --tokenizer, that
of a GGUF file is copied, and its vocabulary becomes the model's: engines that insist on one read such a file, too.
"""
import random
import struct
import sys

# Of each type: its number in GGUF, weights per block, bytes per block.
F32, F16, Q4_0, Q8_0, Q4_K, Q6_K, MXFP4 = (
    (0, 1, 4), (1, 1, 2), (2, 32, 18), (8, 32, 34), (12, 256, 144), (14, 256, 210), (39, 32, 17))
ALIGNMENT = 32
PATTERN_BLOCKS = 4096


def half(x):
    return struct.pack("<e", x)


def block(kind, rng):
    if kind == F32:  # norms, biases, routers, divisors of rotary frequencies, which are 1 and more
        return struct.pack("<f", 1 + rng.random() / 2)
    if kind == F16:
        return half(rng.gauss(0, 0.02))
    if kind == Q4_0:
        return half(4e-3) + rng.randbytes(16)
    if kind == Q8_0:
        return half(2e-4) + rng.randbytes(32)
    if kind == Q4_K:
        return half(4e-5) + half(3e-4) + rng.randbytes(140)
    if kind == Q6_K:
        return rng.randbytes(208) + half(1.5e-5)
    return bytes([120]) + rng.randbytes(16)  # MXFP4: 2^(120 - 127) times up to 6


def more_bits(layer, layers):
    """The layers to which the usual mixes give more bits."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


class Model:
    def __init__(self, arch, layers, hidden, ffn, heads, kv_heads, head_dim, vocab, context, theta, eps=1e-5):
        self.arch, self.layers, self.hidden, self.ffn = arch, layers, hidden, ffn
        self.heads, self.kv_heads, self.head_dim, self.vocab = heads, kv_heads, head_dim, vocab
        self.tensors = []
        self.meta = [("general.architecture", arch)]
        for key, value in [("block_count", layers), ("context_length", context), ("embedding_length", hidden),
                           ("feed_forward_length", ffn), ("attention.head_count", heads),
                           ("attention.head_count_kv", kv_heads), ("attention.key_length", head_dim),
                           ("attention.value_length", head_dim), ("rope.freq_base", float(theta)),
                           ("attention.layer_norm_rms_epsilon", float(eps))]:
            self.set(key, value)

    def set(self, key, value):
        key = f"{self.arch}.{key}"
        self.meta = [(k, v) for k, v in self.meta if k != key] + [(key, value)]

    def add(self, name, kind, *shape):  # shape: innermost first, as GGUF has it
        self.tensors.append((name, kind, shape))

    def norms(self, layer, *names, size=None):
        for name in names:
            self.add(f"blk.{layer}.{name}.weight", F32, size or self.hidden)

    def attention(self, layer, heads=None, kv_heads=None, head_dim=None, kind=Q4_K, value_kind=Q4_K, biases=()):
        heads, kv_heads = heads or self.heads, kv_heads or self.kv_heads
        head_dim = head_dim or self.head_dim
        at = f"blk.{layer}.attn_"
        parts = [("q", kind, self.hidden, heads * head_dim), ("k", kind, self.hidden, kv_heads * head_dim),
                 ("v", value_kind, self.hidden, kv_heads * head_dim), ("output", kind, heads * head_dim, self.hidden)]
        for name, of, width, rows in parts:
            self.add(f"{at}{name}.weight", of, width, rows)
            if name in biases:
                self.add(f"{at}{name}.bias", F32, rows)

    def mlp(self, layer, ffn=None, kind=Q4_K):
        ffn = ffn or self.ffn
        down = Q6_K if kind == Q4_K and more_bits(layer, self.layers) else kind
        self.add(f"blk.{layer}.ffn_gate.weight", kind, self.hidden, ffn)
        self.add(f"blk.{layer}.ffn_up.weight", kind, self.hidden, ffn)
        self.add(f"blk.{layer}.ffn_down.weight", down, ffn, self.hidden)


def qwen2_5_0_5b():
    m = Model("qwen2", 24, 896, 4864, 14, 2, 64, 151936, 32768, 1000000, 1e-6)
    m.add("token_embd.weight", Q8_0, 896, m.vocab)
    for layer in range(m.layers):
        m.norms(layer, "attn_norm", "ffn_norm")
        m.attention(layer, kind=Q4_0, value_kind=Q4_0, biases=("q", "k", "v"))
        m.mlp(layer, kind=Q4_0)
    m.add("output_norm.weight", F32, 896)
    return m


def llama_2b(kind):
    """Two billion weights, for comparisons of speed: about 1.2 GB at four bits."""
    m = Model("llama", 32, 2048, 8192, 16, 4, 128, 49152, 8192, 100000)
    m.set("rope.dimension_count", 128)
    m.meta.append(("general.file_type", 2 if kind == Q4_0 else 15))  # OpenVINO insists on it
    m.add("token_embd.weight", kind, 2048, m.vocab)
    for layer in range(m.layers):
        m.norms(layer, "attn_norm", "ffn_norm")
        m.attention(layer, kind=kind, value_kind=Q6_K if kind == Q4_K and more_bits(layer, 32) else kind)
        m.mlp(layer, kind=kind)
    m.add("output_norm.weight", F32, 2048)
    m.add("output.weight", Q6_K, 2048, m.vocab)
    return m


def llama_3_1_8b():
    m = Model("llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 500000)
    m.set("rope.dimension_count", 128)
    m.add("token_embd.weight", Q4_K, 4096, m.vocab)
    m.add("rope_freqs.weight", F32, 64)
    for layer in range(m.layers):
        m.norms(layer, "attn_norm", "ffn_norm")
        m.attention(layer, value_kind=Q6_K if more_bits(layer, 32) else Q4_K)
        m.mlp(layer)
    m.add("output_norm.weight", F32, 4096)
    m.add("output.weight", Q6_K, 4096, m.vocab)
    return m


def qwen3_8b():
    m = Model("qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 40960, 1000000, 1e-6)
    m.add("token_embd.weight", Q4_K, 4096, m.vocab)
    for layer in range(m.layers):
        m.norms(layer, "attn_norm", "ffn_norm")
        m.norms(layer, "attn_q_norm", "attn_k_norm", size=128)
        m.attention(layer, value_kind=Q6_K if more_bits(layer, 36) else Q4_K)
        m.mlp(layer)
    m.add("output_norm.weight", F32, 4096)
    m.add("output.weight", Q6_K, 4096, m.vocab)
    return m


def gemma_3_4b():
    m = Model("gemma3", 34, 2560, 10240, 8, 4, 256, 262208, 131072, 1000000, 1e-6)
    m.set("attention.sliding_window", 1024)
    m.set("rope.scaling.type", "linear")
    m.set("rope.scaling.factor", 8.0)
    m.add("token_embd.weight", Q6_K, 2560, m.vocab)
    for layer in range(m.layers):
        m.norms(layer, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
        m.norms(layer, "attn_q_norm", "attn_k_norm", size=256)
        m.attention(layer, value_kind=Q6_K if more_bits(layer, 34) else Q4_K)
        m.mlp(layer)
    m.add("output_norm.weight", F32, 2560)
    return m


def gemma_4_e2b():
    m = Model("gemma4", 35, 1536, 6144, 8, 1, 512, 262144, 131072, 1000000, 1e-6)
    owners, full = 15, [layer % 5 == 4 for layer in range(35)]
    widths = [6144 if layer < owners else 12288 for layer in range(35)]
    m.set("feed_forward_length", widths)
    for key, value in [("rope.freq_base_swa", 10000.0), ("final_logit_softcapping", 30.0),
                       ("attention.sliding_window", 512), ("attention.shared_kv_layers", 20),
                       ("embedding_length_per_layer_input", 256),
                       ("attention.sliding_window_pattern", [not x for x in full]), ("attention.key_length_swa", 256),
                       ("attention.value_length_swa", 256), ("rope.dimension_count", 512),
                       ("rope.dimension_count_swa", 256)]:
        m.set(key, value)
    m.add("rope_freqs.weight", F32, 256)
    m.add("token_embd.weight", Q6_K, 1536, m.vocab)
    m.add("per_layer_token_embd.weight", Q6_K, 35 * 256, m.vocab)
    m.add("per_layer_model_proj.weight", F16, 1536, 35 * 256)
    m.add("per_layer_proj_norm.weight", F32, 256)
    for layer in range(m.layers):
        head_dim = 512 if full[layer] else 256
        m.norms(layer, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm")
        m.norms(layer, "layer_output_scale", size=1)
        m.norms(layer, "attn_q_norm", size=head_dim)
        m.attention(layer, head_dim=head_dim)
        if layer < owners:
            m.norms(layer, "attn_k_norm", size=head_dim)
        else:  # reads the keys and values of an owner
            m.tensors = [t for t in m.tensors if t[0] not in (f"blk.{layer}.attn_k.weight", f"blk.{layer}.attn_v.weight")]
        m.mlp(layer, widths[layer])
        m.add(f"blk.{layer}.inp_gate.weight", Q4_K, 1536, 256)
        m.add(f"blk.{layer}.proj.weight", Q4_K, 256, 1536)
    m.add("output_norm.weight", F32, 1536)
    return m


def gpt_oss_20b():
    m = Model("gpt-oss", 24, 2880, 2880, 64, 8, 64, 201088, 131072, 150000)
    experts = 32
    for key, value in [("rope.scaling.type", "yarn"), ("rope.scaling.factor", 32.0),
                       ("rope.scaling.original_context_length", 4096), ("rope.scaling.yarn_beta_fast", 32.0),
                       ("rope.scaling.yarn_beta_slow", 1.0), ("expert_count", experts), ("expert_used_count", 4),
                       ("expert_feed_forward_length", 2880), ("attention.sliding_window", 128)]:
        m.set(key, value)
    m.add("token_embd.weight", Q8_0, 2880, m.vocab)
    for layer in range(m.layers):
        m.norms(layer, "attn_norm", "post_attention_norm")
        m.norms(layer, "attn_sinks", size=64)
        m.attention(layer, kind=Q8_0, value_kind=Q8_0, biases=("q", "k", "v", "output"))
        m.add(f"blk.{layer}.ffn_gate_inp.weight", F32, 2880, experts)
        m.add(f"blk.{layer}.ffn_gate_inp.bias", F32, experts)
        for name in ("gate", "up", "down"):
            m.add(f"blk.{layer}.ffn_{name}_exps.weight", MXFP4, 2880, 2880, experts)
            m.add(f"blk.{layer}.ffn_{name}_exps.bias", F32, 2880, experts)
    m.add("output_norm.weight", F32, 2880)
    m.add("output.weight", Q8_0, 2880, m.vocab)
    return m


SHAPES = {"llama-2b-q4_0": lambda: llama_2b(Q4_0), "llama-2b-q4_k_m": lambda: llama_2b(Q4_K), "qwen2.5-0.5b": qwen2_5_0_5b, "llama-3.1-8b": llama_3_1_8b, "qwen3-8b": qwen3_8b,
          "gemma-3-4b": gemma_3_4b, "gemma-4-e2b": gemma_4_e2b, "gpt-oss-20b": gpt_oss_20b}


def size_of(tensor):
    count = 1
    for n in tensor[2]:
        count *= n
    _, per_block, block_bytes = tensor[1]
    return count // per_block * block_bytes


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def typed(value):
    if isinstance(value, bool):
        return 7, struct.pack("<B", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, str):
        return 8, text(value)
    items = [typed(item) for item in value]
    return 9, struct.pack("<IQ", items[0][0], len(items)) + b"".join(data for _, data in items)


class Entries:
    """The entries of a GGUF file, as bytes."""

    SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    STRING, ARRAY = 8, 9

    def __init__(self, path):
        self.data, self.at = open(path, "rb").read(1 << 26), 24
        magic, _, _, count = struct.unpack_from("<4sIQQ", self.data)
        if magic != b"GGUF":
            sys.exit(f"{path}: is not a GGUF file")
        self.entries = [self.entry() for _ in range(count)]  # (key, bytes)

    def number(self, code, size):
        self.at += size
        return struct.unpack_from(code, self.data, self.at - size)[0]

    def entry(self):
        begin = self.at
        size = self.number("<Q", 8)
        key = self.data[self.at:self.at + size].decode()
        self.at += size
        self.skip(self.number("<I", 4))
        return key, self.data[begin:self.at]

    def skip(self, kind):
        if kind == self.STRING:
            size = self.number("<Q", 8)
            self.at += size
        elif kind == self.ARRAY:
            inner, count = self.number("<I", 4), self.number("<Q", 8)
            if inner in self.SIZES:
                self.at += count * self.SIZES[inner]
            else:
                for _ in range(count):
                    self.skip(inner)
        else:
            self.at += self.SIZES[kind]

    def tokens(self):
        """How many tokens the vocabulary has."""
        key = "tokenizer.ggml.tokens"
        data = dict(self.entries)[key]
        return struct.unpack_from("<Q", data, 8 + len(key) + 8)[0]


def entry(key, value):
    number, data = typed(value)
    return text(key) + struct.pack("<I", number) + data


def write(model, path, tokenizer=None):
    meta = [entry(key, value) for key, value in model.meta]
    if tokenizer is not None:
        source = Entries(tokenizer)
        meta += [data for key, data in source.entries if key.startswith("tokenizer.")]
        rows = lambda name, shape: (*shape[:-1], source.tokens()) if name in ("token_embd.weight", "output.weight") else shape
        model.tensors = [(name, kind, rows(name, shape)) for name, kind, shape in model.tensors]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(model.tensors), len(meta)) + b"".join(meta)
    offset = 0
    for tensor in model.tensors:
        name, kind, shape = tensor
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind[0], offset)
        offset += -(-size_of(tensor) // ALIGNMENT) * ALIGNMENT
    patterns = {}
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT))
        for tensor in model.tensors:
            kind, left = tensor[1], size_of(tensor)
            if kind not in patterns:
                rng = random.Random(kind[0])
                patterns[kind] = b"".join(block(kind, rng) for _ in range(PATTERN_BLOCKS))
            padding = -left % ALIGNMENT
            while left > 0:
                left -= file.write(patterns[kind][:left])
            file.write(bytes(padding))


def main():
    if sys.argv[1:] == ["--list"]:
        for name, make in SHAPES.items():
            print(name, sum(size_of(t) for t in make().tensors))
    elif len(sys.argv) == 3 and sys.argv[1] in SHAPES:
        write(SHAPES[sys.argv[1]](), sys.argv[2])
    elif len(sys.argv) == 5 and sys.argv[1] in SHAPES and sys.argv[3] == "--tokenizer":
        write(SHAPES[sys.argv[1]](), sys.argv[2], sys.argv[4])
    else:
        sys.exit(__doc__ + "\nnames: " + ", ".join(SHAPES))


if __name__ == "__main__":
    main()
