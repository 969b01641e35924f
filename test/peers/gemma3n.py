#!/usr/bin/env python3
"""Gemma 3n as GGUF: a small random file, its logits from Invar and from llama.cpp.

    python3 test/peers/gemma3n.py

Names come from the tables of the package `gguf`, keys from its constants, so that nothing here repeats what Invar believes about
them. llama.cpp fixes some sizes of this family (four streams, Laurel of rank 64, layer inputs of 256, the first 20 layers own their
keys, the first 10 have sparse gates); the file follows. It divides the variance of a sparse gate by n - 1, where Hugging Face and Invar
divide by n, and does not read where gates are cut: the file's number is stretched by that much, so that both cut alike. Ends with "N passed, N failed". Needs the release build.
"""
import json, os, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench", "compare"))
import engines  # noqa: E402

TOLERANCE = 5e-2  # of a log-probability; both keep keys and values in F16, llama.cpp its table of GELU, too

PROGRAM = r"""
import json, math, sys
import gguf, numpy as np, xllamacpp as x
path, prompts = sys.argv[1], json.loads(sys.argv[2])
LAYERS, HIDDEN, FFN, HEADS, KV, DIM, INPUT, RANK, STREAMS, VOCAB = 22, 64, 512, 4, 2, 16, 256, 64, 4, 320
rng = np.random.default_rng(7)
w = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH.GEMMA3N])
w.add_block_count(LAYERS); w.add_context_length(512); w.add_embedding_length(HIDDEN); w.add_feed_forward_length(FFN)
w.add_head_count(HEADS); w.add_head_count_kv(KV); w.add_key_length(DIM); w.add_value_length(DIM)
w.add_layer_norm_rms_eps(1e-6); w.add_rope_freq_base(1e6); w.add_sliding_window(12)
w.add_sliding_window_pattern([(l + 1) % 5 != 0 for l in range(LAYERS)])
w.add_shared_kv_layers(LAYERS - 20); w.add_altup_num_inputs(STREAMS); w.add_altup_active_idx(0)
w.add_embedding_length_per_layer_input(INPUT)
w.add_activation_sparsity_scale([1.6448536269514722 * math.sqrt(FFN / (FFN - 1))] * 10 + [-math.inf] * (LAYERS - 10))
pieces = ["<unk>", "<s>", "</s>"] + [f"x{i}" for i in range(VOCAB - 3)]
w.add_tokenizer_model("llama"); w.add_token_list(pieces); w.add_token_scores([0.0] * VOCAB)
w.add_token_types([2, 3, 3] + [1] * (VOCAB - 3))
w.add_bos_token_id(1); w.add_eos_token_id(2); w.add_unk_token_id(0); w.add_pad_token_id(0)
def add(kind, *shape, layer=None):
    x = rng.standard_normal(shape) / math.sqrt(shape[-1]) if len(shape) > 1 else 1 + 0.1 * rng.standard_normal(shape)
    if kind == "FFN_POST_NORM": x = x * 0.3  # sharp gates of ten layers in a row let roundings grow
    w.add_tensor(gguf.TENSOR_NAMES[getattr(gguf.MODEL_TENSOR, kind)].format(bid=layer) + ".weight", x.astype(np.float32))
add("TOKEN_EMBD", VOCAB, HIDDEN); add("OUTPUT_NORM", HIDDEN)
add("ALTUP_PROJ", STREAMS - 1, HIDDEN, HIDDEN); add("ALTUP_UNEMBD_PROJ", STREAMS - 1, HIDDEN, HIDDEN)
add("PER_LAYER_TOKEN_EMBD", VOCAB, LAYERS * INPUT); add("PER_LAYER_MODEL_PROJ", LAYERS * INPUT, HIDDEN); add("PER_LAYER_PROJ_NORM", INPUT)
for l in range(LAYERS):
    def layer(kind, *shape):
        add(kind, *shape, layer=l)
    for kind in ("ATTN_NORM", "ATTN_POST_NORM", "FFN_PRE_NORM", "FFN_POST_NORM", "PER_LAYER_POST_NORM", "ALTUP_CORRECT_SCALE",
                 "ALTUP_ROUTER_NORM", "LAUREL_POST_NORM"):
        layer(kind, HIDDEN)
    layer("ATTN_Q", HEADS * DIM, HIDDEN); layer("ATTN_K", KV * DIM, HIDDEN); layer("ATTN_V", KV * DIM, HIDDEN)
    layer("ATTN_OUT", HIDDEN, HEADS * DIM); layer("ATTN_Q_NORM", DIM); layer("ATTN_K_NORM", DIM)
    layer("FFN_GATE", FFN, HIDDEN); layer("FFN_UP", FFN, HIDDEN); layer("FFN_DOWN", HIDDEN, FFN)
    layer("PER_LAYER_INP_GATE", INPUT, HIDDEN); layer("PER_LAYER_PROJ", HIDDEN, INPUT)
    layer("ALTUP_CORRECT_COEF", STREAMS, STREAMS); layer("ALTUP_PREDICT_COEF", STREAMS * STREAMS, STREAMS)
    layer("ALTUP_ROUTER", STREAMS, HIDDEN); layer("LAUREL_L", RANK, HIDDEN); layer("LAUREL_R", HIDDEN, RANK)
w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
p = x.CommonParams()
p.model.path, p.n_ctx, p.n_parallel, p.warmup = path, 512, 1, False
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
server = x.Server(p)
for ids in prompts:
    r = server.handle_completions({"prompt": ids, "n_predict": 1, "temperature": 0, "n_probs": VOCAB, "cache_prompt": False, "ignore_eos": True})
    r = json.loads(r) if isinstance(r, str) else r
    out = [0.0] * VOCAB
    for c in r["choices"][0]["logprobs"]["content"][0]["top_logprobs"]:
        out[c["id"]] = c["logprob"]
    print(json.dumps({"logprobs": out}), flush=True)
"""

OWN_PROGRAM = r"""
import json, sys
import numpy as np
row = np.load(sys.argv[1])[-1].astype(np.float64)
print(json.dumps((row - row.max() - np.log(np.exp(row - row.max()).sum())).tolist()))
"""


def main():
    python, version = engines.install("llama.cpp")
    subprocess.run([python, "-m", "pip", "install", "-q", "gguf", "numpy"], check=True)
    invar = os.path.join(ROOT, "build", "release", "invar")
    prompts = [[1] + [(7 + 13 * i * i) % 317 + 3 for i in range(n)] for n in (1, 4, 11, 12, 13, 40, 100)]
    passed = failed = 0
    with tempfile.TemporaryDirectory() as work:
        model = os.path.join(work, "gemma3n.gguf")
        out = subprocess.run([python, "-c", PROGRAM, model, json.dumps(prompts)], check=True, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL).stdout
        peers = [json.loads(line)["logprobs"] for line in out.splitlines() if line.startswith('{"logprobs"')]
        for ids, peer in zip(prompts, peers, strict=True):
            rows = os.path.join(work, "rows.npy")
            subprocess.run([invar, "logits", "--model", model, "--tokens", "-", "--out", rows], input=json.dumps(ids), text=True, check=True,
                           stdout=subprocess.DEVNULL)
            own = json.loads(subprocess.run([python, "-c", OWN_PROGRAM, rows], check=True, text=True, stdout=subprocess.PIPE).stdout)
            distance = max(abs(a - b) for a, b in zip(own, peer, strict=True))
            good = distance <= TOLERANCE
            passed, failed = passed + good, failed + (not good)
            print(f"{'ok' if good else 'FAILED':6} {len(ids)} tokens: log-probabilities are at most {distance:.1e} apart")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
