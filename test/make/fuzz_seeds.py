#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets, small valid files of every kind, into test/fuzz/seeds.

usage: test/make/fuzz_seeds.py      (Python 3.9, no packages)
"""
import json
import pathlib
import struct

SEEDS = pathlib.Path(__file__).resolve().parents[1] / "fuzz" / "seeds"


def write(target, name, data):
    path = SEEDS / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())


# ---- GGUF: every type of value, and tensors of several types
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
SCALARS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}


def gguf_value(kind, value):
    if kind == STRING:
        return struct.pack("<Q", len(value.encode())) + value.encode()
    if kind == ARRAY:
        inner, items = value
        return struct.pack("<IQ", inner, len(items)) + b"".join(gguf_value(inner, x) for x in items)
    return struct.pack("<" + SCALARS[kind], value)


def gguf(entries, tensors, alignment=32):
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries))
    for key, kind, value in entries:
        out += gguf_value(STRING, key) + struct.pack("<I", kind) + gguf_value(kind, value)
    data = b""
    for name, shape, kind, content in tensors:
        data += b"\0" * (-len(data) % alignment)
        out += gguf_value(STRING, name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        out += struct.pack("<IQ", kind, len(data))
        data += content
    return out + b"\0" * (-len(out) % alignment) + data


TOKENS = ["<unk>", "<s>", "</s>", "a", "b", "ab", "\u0120", "\u0120a"]
write("gguf", "types.gguf", gguf(
    [("general.architecture", STRING, "llama"), ("general.alignment", U32, 64)]
    + [(f"t.{k}", k, 1) for k in (U8, I8, U16, I16, I32, U64, I64)]
    + [("t.f32", F32, 0.5), ("t.f64", F64, 0.25), ("t.bool", BOOL, True), ("t.empty", ARRAY, (I32, [])),
       ("t.bools", ARRAY, (BOOL, [True, False])), ("t.floats", ARRAY, (F32, [1.0, 2.0])),
       ("t.nested", ARRAY, (ARRAY, [(U8, [1, 2]), (STRING, ["x"])]))],
    [("f32", [4, 2], 0, b"\0" * 32), ("f16", [3], 1, b"\0" * 6), ("q4_0", [32, 2], 2, b"\1" * 36),
     ("q6_k", [256], 14, b"\2" * 210), ("bf16", [2, 1, 1, 1], 30, b"\0" * 4)], 64))
write("gguf", "model.gguf", gguf(
    [("general.architecture", STRING, "llama"), ("general.name", STRING, "seed"), ("llama.block_count", U32, 1),
     ("llama.context_length", U32, 64), ("llama.embedding_length", U32, 8), ("llama.feed_forward_length", U32, 8),
     ("llama.attention.head_count", U32, 2), ("llama.attention.head_count_kv", ARRAY, (U32, [1])),
     ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5), ("llama.rope.freq_base", F32, 1e4),
     ("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, "smollm"),
     ("tokenizer.ggml.tokens", ARRAY, (STRING, TOKENS)), ("tokenizer.ggml.token_type", ARRAY, (I32, [2, 3, 3, 1, 1, 1, 1, 1])),
     ("tokenizer.ggml.merges", ARRAY, (STRING, ["a b", "\u0120 a"])), ("tokenizer.chat_template", STRING, "{{ messages }}")],
    [("token_embd.weight", [8, 8], 0, b"\0" * 256), ("blk.0.attn_norm.weight", [8], 0, b"\0" * 32)]))
write("gguf", "empty.gguf", gguf([], []))

# ---- models: whole ones of one layer
HIDDEN, FFN, VOCAB = 32, 32, 6


def gguf_model(family, more, quantized):
    """Rows of 32 numbers, of the type and bytes given; q and k rotate in heads of 16, two and one."""
    kind, row = quantized
    matrix = lambda name, rows: (name + ".weight", [32, rows], kind, row * rows)
    vector = lambda name, n: (name, [n], 0, struct.pack("<f", 1) * n)
    blk = "blk.0."
    tensors = [matrix("token_embd", VOCAB), vector("output_norm.weight", HIDDEN), vector(blk + "attn_norm.weight", HIDDEN),
               matrix(blk + "attn_q", 32), matrix(blk + "attn_k", 16), matrix(blk + "attn_v", 16),
               matrix(blk + "attn_output", 32), vector(blk + "ffn_norm.weight", HIDDEN), matrix(blk + "ffn_gate", FFN),
               matrix(blk + "ffn_up", FFN), matrix(blk + "ffn_down", HIDDEN)]
    if family == "qwen2":
        tensors += [vector(blk + f"attn_{x}.bias", n) for x, n in (("q", 32), ("k", 16), ("v", 16))]
    if family == "qwen3":
        tensors += [vector(blk + f"attn_{x}_norm.weight", 16) for x in "qk"]
    keys = [("block_count", U32, 1), ("context_length", U32, 64), ("embedding_length", U32, HIDDEN),
            ("feed_forward_length", U32, FFN), ("attention.head_count", U32, 2), ("attention.head_count_kv", U32, 1),
            ("attention.layer_norm_rms_epsilon", F32, 1e-5), ("rope.freq_base", F32, 1e4)] + more
    return gguf([("general.architecture", STRING, family)] + [(family + "." + k, t, v) for k, t, v in keys], tensors)


write("model", "llama.gguf", gguf_model("llama", [], (2, b"\0\x3c" + b"\x5a" * 16)))  # Q4_0
write("model", "yarn.gguf", gguf_model("qwen3", [
    ("rope.scaling.type", STRING, "yarn"), ("rope.scaling.factor", F32, 4), ("rope.scaling.original_context_length", U32, 16)],
    (3, b"\0\x3c\0\xbc" + b"\x5a" * 16)))  # Q4_1
write("model", "biases.gguf", gguf_model("qwen2", [], (6, b"\0\x3c" + b"\xa5" * 4 + b"\x11" * 16)))  # Q5_0


# ---- safetensors
def safetensors(tensors, metadata=None):
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, dtype, shape, content in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


write("safetensors", "types.safetensors", safetensors(
    [("a.weight", "F32", [2, 3], b"\0" * 24), ("b", "BF16", [4], b"\1" * 8), ("c", "F16", [1, 1, 1], b"\2" * 2),
     ("d", "I64", [], b"\3" * 8), ("e", "U8", [0], b"")], {"format": "pt"}))
write("safetensors", "empty.safetensors", safetensors([]))



def folder_model(model_type, **more):
    """config.json, a zero byte, model.safetensors."""
    half = lambda *shape: ("BF16", list(shape), b"\x80\x3f" * (shape[0] * (shape + (1,))[1]))
    layer = "model.layers.0."
    tensors = {"model.embed_tokens.weight": half(VOCAB, 8), "model.norm.weight": half(8), "lm_head.weight": half(VOCAB, 8),
               layer + "input_layernorm.weight": half(8), layer + "post_attention_layernorm.weight": half(8),
               layer + "self_attn.q_proj.weight": half(8, 8), layer + "self_attn.k_proj.weight": half(4, 8),
               layer + "self_attn.v_proj.weight": half(4, 8), layer + "self_attn.o_proj.weight": half(8, 8),
               layer + "mlp.gate_proj.weight": half(8, 8), layer + "mlp.up_proj.weight": half(8, 8),
               layer + "mlp.down_proj.weight": half(8, 8)}
    config = {"model_type": model_type, "vocab_size": VOCAB, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
              "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
              "hidden_act": "silu", "rope_theta": 1e4, "tie_word_embeddings": False, **more}
    return json.dumps(config).encode() + b"\0" + safetensors([(k, *v) for k, v in tensors.items()])


write("model", "llama3", folder_model("llama", rope_scaling={
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}))
write("model", "yarn", folder_model("smollm3", no_rope_layers=[0], rope_scaling={
    "rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0, "truncate": False}))

# ---- JSON
# ---- folders whose matrices are several tensors
def quantized_folder(name, method, tensors):
    write("quantized_folder", name, json.dumps({"quantization_config": method}).encode() + b"\0" + safetensors(
        [("a." + n, dtype, shape, bytes([fill]) * size) for n, dtype, shape, fill, size in tensors]))


INT4 = [("qweight", "I32", [8, 8], 0x5A, 256), ("qzeros", "I32", [2, 1], 0x77, 8), ("scales", "F16", [2, 8], 0x30, 32)]
SWAPPED = b"".join(struct.pack("<i", (k // 32) ^ (k in (0, 40))) for k in range(64))
quantized_folder("mlx", dict(bits=4, group_size=32, a=dict(bits=8)), [
    ("weight", "U32", [2, 8], 0x5A, 64), ("scales", "F16", [2, 1], 0x30, 4), ("biases", "F16", [2, 1], 0xB0, 4)])
quantized_folder("mlx-nvfp4", dict(mode="nvfp4", bits=4, group_size=16), [
    ("weight", "U32", [2, 4], 0x5A, 32), ("scales", "U8", [2, 2], 0x38, 4), ("global_scale", "F32", [1], 0x44, 4)])
quantized_folder("mxfp8", dict(mode="mxfp8", bits=8, group_size=32), [
    ("weight", "U32", [2, 8], 0x3A, 64), ("scales", "U8", [2, 1], 0x7F, 2)])
quantized_folder("mxfp4", dict(quant_method="mxfp4"), [
    ("w_blocks", "U8", [1, 2, 1, 16], 0x5A, 32), ("w_scales", "U8", [1, 2, 1], 0x7F, 2)])
quantized_folder("gptq", dict(quant_method="gptq", bits=4, group_size=32, sym=True), INT4)
quantized_folder("awq", dict(quant_method="awq", bits=4, group_size=32, version="gemm"), [
    ("qweight", "I32", [64, 1], 0x5A, 256)] + INT4[1:])
quantized_folder("fp8", dict(quant_method="fp8", weight_block_size=[2, 32]), [
    ("weight", "F8_E4M3", [3, 64], 0x3A, 192), ("weight_scale_inv", "F32", [2, 2], 0x3C, 16)])
quantized_folder("fp8-rows", dict(quant_method="compressed-tensors", config_groups=dict(g=dict(weights=dict(block_structure=[1, 32])))), [
    ("weight", "F8_E4M3", [3, 64], 0x3A, 192), ("weight_scale", "BF16", [3, 1], 0x3C, 6)])
quantized_folder("nvfp4", dict(quant_method="compressed-tensors", format="nvfp4-pack-quantized"), [
    ("weight_packed", "U8", [2, 16], 0x5A, 32), ("weight_scale", "F8_E4M3", [2, 2], 0x38, 4), ("weight_global_scale", "F32", [1], 0x44, 4)])
quantized_folder("modelopt", dict(quant_method="modelopt"), [
    ("weight", "U8", [2, 16], 0x5A, 32), ("weight_scale", "F8_E4M3", [2, 2], 0x38, 4), ("weight_scale_2", "F32", [], 0x3C, 4)])
write("quantized_folder", "act-order", json.dumps({"quantization_config": dict(quant_method="gptq", bits=4, group_size=32)}).encode()
      + b"\0" + safetensors([("a." + n, d, s, bytes([f]) * z) for n, d, s, f, z in INT4] + [("a.g_idx", "I32", [64], SWAPPED)]))
write("config", "llama.json", json.dumps(
    {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "rms_norm_eps": 1e-05, "tie_word_embeddings": True,
     "rope_scaling": {"factor": 8.0, "rope_type": "llama3"}, "layer_types": ["full_attention"], "eos_token_id": [1, 2],
     "a": {"b": None}, "text": "\u00e9\n\U0001f600"}))
write("config", "numbers.json", '{"a": [0, -1, 9223372036854775807, 1.5e-300, 1E+10, true, null], "b": -0.0}')
TOKENIZER = {
    "version": "1.0", "truncation": None, "padding": None,
    "added_tokens": [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                      "special": True} for i, t in enumerate(TOKENS[:3])],
    "normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                                                     "use_regex": True},
    "post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
    "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
              "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
              "vocab": {t: i for i, t in enumerate(TOKENS)}, "merges": ["a b", "\u0120 a"]}}
CONFIG = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "add_bos_token": True, "chat_template": "{{ messages }}"}
write("tokenizer_json", "bpe", json.dumps(TOKENIZER) + "\0" + json.dumps(CONFIG))
TOKENIZER["model"].update(byte_fallback=True, unk_token="<unk>", merges=[["a", "b"]])
TOKENIZER["normalizer"] = {"type": "Sequence", "normalizers": [
    {"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}
TOKENIZER["pre_tokenizer"] = None
TOKENIZER["decoder"] = {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
write("tokenizer_json", "byte-fallback", json.dumps(TOKENIZER))


# ---- GGUF vocabulary: flags, then lines
def vocabulary(flags, tokens, merges, texts):
    lines = [f"t{kind}{t}" for t, kind in tokens] + [f"m{m}" for m in merges] + [f"e{t}" for t in texts]
    return bytes([flags]) + "\n".join(lines).encode()


write("tokenizer_gguf", "gpt2", vocabulary(128 | 2 << 1, list(zip(TOKENS, "23311111")), ["a b", "\u0120 a"], ["ab a"]))
PIECES = [("<unk>", "2"), ("<s>", "3"), ("</s>", "3"), ("\u2581", "1"), ("a", "1"), ("\u2581a", "1"), ("b", "1")]
write("tokenizer_gguf", "llama", vocabulary(
    128 | 64 | 1, PIECES + [(f"<0x{i:02X}>", "6") for i in range(256)], [], ["ab <s> \u00e9"]))

# ---- packed file: edits of a valid one (place, value)
write("packed_file", "nothing", b"")
write("packed_file", "edits", bytes([9, 0, 2, 65, 0, 7, 0, 16, 5]))
write("packed_file", "whole", b"INVRPACK" + b"\1\0\0\0\2\0\0\0" + b"\0" * 60)

write("chat_template", "features.jinja", """{%- macro m(x, y='d') -%}{{ x ~ y }}{%- endmacro -%}
{{ bos_token }}{% for message in messages if message.role != 'x' %}{% set ns = namespace(n=loop.index0) %}
{{- '<|' + message['role'] + '|>' + message.content | trim + eos_token }}{{ m(ns.n) }}{% else %}none{% endfor %}
{%- if tools is defined and tools %}{{ tools | tojson(indent=2) }}{% endif %}
{%- if add_generation_prompt %}{% generation %}{{ strftime_now('%Y') }}{% endgeneration %}{% endif %}""")

# ---- requests: the first byte chooses the endpoint
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}}]
HISTORY = [{"role": "developer", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "Hello <|im_end|>"}]},
           {"role": "assistant", "content": None, "tool_calls": [
               {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
           {"role": "tool", "tool_call_id": "a", "content": "r"}]
SAMPLING = {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "presence_penalty": 1, "frequency_penalty": -1,
            "repetition_penalty": 1.1, "logit_bias": {"5": 1}, "seed": -1, "max_tokens": 5, "stop": ["EN", "END"],
            "stop_token_ids": [7], "ignore_eos": True, "n": 2, "stream": True, "stream_options": {"include_usage": True}}
write("openai_request", "chat", b"\0" + json.dumps(
    {"model": "tiny", "messages": HISTORY, "tools": TOOLS, "tool_choice": "auto", "logprobs": True, "top_logprobs": 2,
     "response_format": {"type": "text"}, "chat_template_kwargs": {"mood": "x"}, **SAMPLING}).encode())
write("openai_request", "prefill", b"\0" + json.dumps(
    {"messages": HISTORY[:2] + [{"role": "assistant", "content": "He"}], "continue_final_message": True}).encode())
write("openai_request", "completions", b"\1" + json.dumps(
    {"prompt": ["Hello", "\u00e9"], "echo": True, "logprobs": 2, **SAMPLING}).encode())
write("openai_request", "best_of", b"\1" + json.dumps({"prompt": [[1, 2], [260]], "best_of": 3, "n": 2}).encode())
write("openai_request", "score", b"\1" + json.dumps(
    {"prompt": [72, 101], "echo": True, "logprobs": 0, "max_tokens": 0}).encode())
write("openai_request", "tokenize", b"\2" + json.dumps({"prompt": "Hello", "with_pieces": True, "return_token_strs": True}).encode())
write("openai_request", "detokenize", b"\3" + json.dumps({"tokens": [72, 200, 260]}).encode())
write("openai_request", "apply_template", b"\4" + json.dumps({"messages": HISTORY, "tools": TOOLS}).encode())

# ---- HTTP: the first byte says in which pieces the rest arrives
write("http_request", "get", b"\0GET /v1/models?x=%20 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
write("http_request", "old", b"\5HEAD http://a/health HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET")
write("http_request", "length", b"\6POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\nabcdef")
write("http_request", "chunked", b"\7POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: x\r\n\r\n"
      b"3;a=\"b\"\r\nabc\r\nA\r\n0123456789\r\n0\r\nx: y\r\n\r\n")

# ---- prompts: the number of a template, then lines of text
for number, text in enumerate(["<|im_end|>", " <|im_ \n end|> ", "<|imx_end|>", "<xIM_STARTx>", "<|im_end|>\"\\", "|im_end|><",
                               "<x|im_startx|>", "<\n|>", "a<|im_start|>b<|im_end", ">|dne_mi|<"]):
    write("prompt", str(number), bytes([number]) + text.encode())

# ---- streams: stop strings, an empty line, tokens
write("text_stream", "plain", b"\nHe\xfe\2llo \xc3\xa9 \xf0\x9f\x98 \xfe\5x")
write("text_stream", "stops", b"END\nEN\nDx\n\nabcE\xfe\4NDx")
write("text_stream", "broken", "\ufffd!\n\u00e9\n\na".encode() + b"\xc3\xf0\x9f!\xc3\xa9")
