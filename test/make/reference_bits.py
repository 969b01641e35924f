"""Freezes the logits of an outside implementation of docs/numerics.md as test data for test/reference_bits_test.cc.

usage: reference_bits.py ORACLES OUT COMMAND...
  ORACLES   folder with models/NAME (safetensors), gguf/lossless/NAME.gguf and gguf/quant/NAME.gguf
  OUT       folder that receives one NAME.json and one NAME.rows per model
  COMMAND   the implementation; called as COMMAND... --dump=MODEL IDS.json LOGITS.npy, f32 KV cache

Two sequences per model: a short one and a long one that crosses splits of 256 positions where the model's context
allows it. NAME.json holds the ids, per position the first 8 bytes of the SHA-256 of the row (float32, little endian),
and the positions whose whole rows lie in NAME.rows, so that a mismatch can be looked at.
"""
import hashlib, json, os, random, subprocess, sys, tempfile
import numpy as np

HF = {  # name: (vocabulary, positions of the long sequence)
    "llama-linear-bias": (480, 330), "llama-q256": (320, 330), "llama-tied-rope-llama3": (512, 330),
    "llama-untied": (480, 330), "llama-yarn": (480, 120), "qwen2-bias": (505, 330), "qwen3-qknorm": (480, 330),
    "smollm3-nope": (480, 330),
}
LOSSLESS = {"llama-tied-rope-llama3": 512, "llama-untied": 480, "qwen2-bias": 505, "qwen3-qknorm": 480,
            "smollm3-nope": 480}
QUANT = ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q4_K_M-mix"]


def cases():
    for name, (vocab, long) in HF.items():
        yield name, f"models/{name}", vocab, long
    for name, vocab in LOSSLESS.items():
        yield f"{name}.gguf", f"gguf/lossless/{name}.gguf", vocab, 300
    for kind in QUANT:
        yield f"llama-q256-{kind}.gguf", f"gguf/quant/llama-q256-{kind}.gguf", 320, 300
    yield "qwen3-q256-Q4_K.gguf", "gguf/quant/qwen3-q256-Q4_K.gguf", None, 300


def dump(command, model, ids):
    with tempfile.TemporaryDirectory() as d:
        with open(f"{d}/ids.json", "w") as f:
            json.dump(ids, f)
        subprocess.run([*command, f"--dump={model}", f"{d}/ids.json", f"{d}/out.npy"], check=True)
        return np.load(f"{d}/out.npy")


def main():
    oracles, out, command = sys.argv[1], sys.argv[2], sys.argv[3:]
    for name, path, vocab, long in cases():
        if os.path.exists(f"{out}/{name}.json"):
            continue
        if vocab is None:  # from a first look at one row
            vocab = dump(command, f"{oracles}/{path}", [0]).shape[1]
        rng = random.Random(f"reference bits of {name}")
        sequences, rows = [], []
        for length in (23, long):
            ids = [rng.randrange(vocab) for _ in range(length)]
            logits = dump(command, f"{oracles}/{path}", ids)
            assert logits.dtype == np.dtype("<f4") and logits.shape == (length, vocab), (logits.dtype, logits.shape)
            assert np.isfinite(logits).all()
            full = sorted({0, length // 2, length - 1})
            rows += [logits[p] for p in full]
            sequences.append(dict(ids=ids, row_hash=[hashlib.sha256(r.tobytes()).hexdigest()[:16] for r in logits],
                                  full_rows=full))
        np.stack(rows).astype("<f4").tofile(f"{out}/{name}.rows")
        with open(f"{out}/{name}.json", "w") as f:
            json.dump(dict(model=path, vocab=vocab, sequences=sequences), f, separators=(",", ":"))
            f.write("\n")
        print(name, flush=True)


main()
