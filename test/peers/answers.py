#!/usr/bin/env python3
"""Invar's greedy answers and speed beside llama.cpp's, on one quantized GGUF file.

    python3 test/peers/answers.py [--model gemma3-270m] [--tokens 64] [--rounds 5] [--threads 2]

Answers: llama.cpp reads the file dequantized to F32 (`invar convert --type F32`), Invar the file as it is; each tokenizes
for itself. A prompt passes if the tokens are equal up to the first position where llama.cpp's two best logits are less
than 0.5 apart: what comes after is decided by the rounding of activations, not by the model. Speed: both on the quantized
file, rounds interleaved (bench/compare); a measure passes if the median of the rounds' ratios is at least 1. Ends with
"N passed, N failed". --rounds 0 leaves the speed out. Needs the release build; pip fetches llama.cpp (`xllamacpp`).
"""
import argparse, json, os, re, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench", "compare"))
import engines  # noqa: E402
import machine  # noqa: E402
from prompts import PROMPTS  # noqa: E402
from results import Results  # noqa: E402
from rounds import interleave  # noqa: E402

MARGIN = 0.5

PEER_PROGRAM = r"""
import json, sys
import xllamacpp as x
model, threads, tokens = sys.argv[1], *map(int, sys.argv[2:4])
p = x.CommonParams()
p.model.path, p.n_ctx, p.n_parallel = model, 4096, 1
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
server = x.Server(p)
for prompt in json.load(sys.stdin):
    r = server.handle_completions({"prompt": prompt, "n_predict": tokens, "temperature": 0, "n_probs": 2, "cache_prompt": False})
    r = json.loads(r) if isinstance(r, str) else r
    steps = [(t["id"], [c["logprob"] for c in t["top_logprobs"]]) for t in r["choices"][0]["logprobs"]["content"]]
    print(json.dumps({"prompt": r["usage"]["prompt_tokens"], "ended": r["choices"][0]["finish_reason"] == "stop",
                      "ids": [i for i, _ in steps], "margins": [top[0] - top[1] for _, top in steps]}), flush=True)
"""


def peer_answers(python, model, o):
    out = subprocess.run([python, "-c", PEER_PROGRAM, model, str(o.threads), str(o.tokens)], check=True, text=True,
                         input=json.dumps([text for _, text in PROMPTS]), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    return [json.loads(line) for line in out.splitlines() if line.startswith('{"prompt"')]


def own_answers(invar, work, o):
    """Token ids of each answer, all prompts in one batch."""
    path = os.path.join(work, "prompts.jsonl")
    with open(path, "w") as f:
        f.writelines(json.dumps({"prompt": text}) + "\n" for _, text in PROMPTS)
    out = subprocess.run([invar, "run", "--model", o.model, "--raw", "--file", path, "--temp", "0", "-n", str(o.tokens), "--logprobs", "0",
                          "--threads", str(o.threads)], check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    answers = re.split(r"^==> prompt \d+ <==\n", out, flags=re.M)[1:]
    return [[int(m) for m in re.findall(r"^ *(\d+) +-?\d", a, flags=re.M)] for a in answers]


def own_prompt_tokens(invar, text, o):
    out = subprocess.run([invar, "tokenize", "--model", o.model, "--ids", "--bos"], input=text, check=True, text=True, stdout=subprocess.PIPE).stdout
    return len(json.loads(out))


def compared(peer):
    """How many tokens count: those before the first near tie."""
    return next((i for i, m in enumerate(peer["margins"]) if m < MARGIN), len(peer["margins"]))


def fault(peer, own):
    """What differs, or None."""
    n = compared(peer)
    if n == 0:
        return "a near tie at the first token: the prompt tests nothing"
    for i in range(n):
        if i >= len(own) or own[i] != peer["ids"][i]:
            mine = own[i] if i < len(own) else "the end"
            return f"token {i}: {mine} instead of {peer['ids'][i]}, margin {peer['margins'][i]:.2f}"
    if peer["ended"] and n == len(peer["ids"]) and len(own) > n:
        return f"goes on after {n} tokens, where llama.cpp ends"
    return None


def check_answers(python, invar, o):
    """Names of prompts that differ."""
    with tempfile.TemporaryDirectory() as work:
        exact = os.path.join(work, "f32.gguf")
        subprocess.run([invar, "convert", o.model, exact, "--type", "F32", "--no-kl"], check=True, stdout=subprocess.DEVNULL)
        peers, own = peer_answers(python, exact, o), own_answers(invar, work, o)
    assert len(peers) == len(own) == len(PROMPTS), (len(peers), len(own))
    failed = []
    for (name, text), peer, ids in zip(PROMPTS, peers, own):
        tokens = own_prompt_tokens(invar, text, o)
        wrong = fault(peer, ids) or (f"{tokens} prompt tokens instead of {peer['prompt']}" if tokens != peer["prompt"] else None)
        print(f"{'FAILED' if wrong else 'ok':6} {name}: prompt of {tokens}, {compared(peer)} tokens compared{'; ' + wrong if wrong else ''}")
        failed += [name] if wrong else []
    return failed


def check_speed(python, invar, o):
    results, model = Results(), os.path.basename(o.model)
    tests = [f"prompt:{o.prompt}", f"decode:0:{o.decode}"]
    interleave(results, machine.Runner(wait=True), [engines.Invar(invar), engines.Peer("llama.cpp", python)], model, o.model, tests, o.rounds, o.threads)
    ratios = {test: results.ratio(model, engines.key(test), "llama.cpp") for test in tests}
    for test, ratio in ratios.items():
        rates = " against ".join(f"{results.speed(model, engines.key(test), e):.1f}" for e in (engines.OWN, "llama.cpp"))
        print(f"{'ok' if ratio >= 1 else 'FAILED':6} {engines.key(test)} speed: {ratio:.2f} times llama.cpp's; medians {rates} tokens/s")
    return [test for test, ratio in ratios.items() if ratio < 1]


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--model", default="gemma3-270m", help="a short name or a GGUF file")
    a.add_argument("--tokens", type=int, default=64)
    a.add_argument("--threads", type=int, default=2)
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--prompt", type=int, default=512, help="tokens of the prompt whose speed is measured")
    a.add_argument("--decode", type=int, default=64)
    o = a.parse_args()
    invar = os.path.join(ROOT, "build", "release", "invar")
    if not os.path.exists(o.model):
        subprocess.run(["bash", os.path.join(ROOT, "packaging", "fetch_model.sh"), o.model], check=True)
        found = json.loads(subprocess.run([invar, "pull", o.model, "--json"], check=True, text=True, stdout=subprocess.PIPE).stdout)
        o.model = found["path"]
    python, version = engines.install("llama.cpp")
    print(f"{os.path.basename(o.model)}, xllamacpp {version}, {machine.cpu_model()}, {o.threads} threads")
    failed = check_answers(python, invar, o)
    checks = len(PROMPTS)
    if o.rounds > 0:
        failed += check_speed(python, invar, o)
        checks += 2
    print(f"{checks - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
