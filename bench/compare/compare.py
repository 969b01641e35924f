#!/usr/bin/env python3
"""Invar against llama.cpp on this machine: one run, rounds interleaved, same file, same threads.

    python3 bench/compare/compare.py MODEL.gguf [--threads 2] [--rounds 5] [--prompt 512] [--decode 64] [--json FILE]

llama.cpp comes as the newest `xllamacpp` wheel, installed into build/peers by pip. Its own timings are used; prompts
are the same kind of random token ids for both. A round is repeated when other processes used more than a tenth of a
core meanwhile. Prints medians with minimum and maximum, and the median of the rounds' ratios.
"""
import argparse, json, os, platform, random, statistics, subprocess, sys, time, venv

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PEERS = os.path.join(ROOT, "build", "peers")

PEER_PROGRAM = r"""
import json, random, sys
import xllamacpp as x
model, threads, prompt, decode, seed = sys.argv[1], *map(int, sys.argv[2:6])
p = x.CommonParams()
p.model.path, p.n_ctx, p.n_parallel, p.warmup = model, prompt + decode + 64, 1, True
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
server, rng = x.Server(p), random.Random(seed)
def run(n, k):
    ids = [rng.randrange(1000, 20000) for _ in range(n)]
    r = server.handle_completions({"prompt": ids, "n_predict": k, "temperature": 0, "cache_prompt": False, "ignore_eos": True})
    return (json.loads(r) if isinstance(r, str) else r)["timings"]
run(32, 4)
print(json.dumps({"prompt": run(prompt, 1)["prompt_per_second"], "decode": run(8, decode)["predicted_per_second"]}))
"""


def cpu_times():
    """Busy time of the whole machine, in seconds."""
    v = [int(x) for x in open("/proc/stat").readline().split()[1:]]
    return (sum(v[:3]) + sum(v[5:8])) / os.sysconf("SC_CLK_TCK")


def measured(argv):
    """stdout of argv, wall seconds, and cores that other processes used meanwhile."""
    before, start = cpu_times(), time.monotonic()
    child = os.times()
    out = subprocess.run(argv, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    after, wall = os.times(), time.monotonic() - start
    own = after.children_user + after.children_system - child.children_user - child.children_system
    return out, wall, max(0.0, (cpu_times() - before - own) / wall)


def install():
    python = os.path.join(PEERS, "bin", "python")
    if not os.path.exists(python):
        print("installing llama.cpp (xllamacpp) into build/peers", file=sys.stderr)
        venv.create(PEERS, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "-q", "xllamacpp"], check=True)
    version = subprocess.run([python, "-m", "pip", "show", "xllamacpp"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return python, next(l.split()[1] for l in version.splitlines() if l.startswith("Version"))


def cpu_model():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("model")
    a.add_argument("--threads", type=int, default=2)
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--prompt", type=int, default=512)
    a.add_argument("--decode", type=int, default=64)
    a.add_argument("--json")
    o = a.parse_args()
    python, version = install()
    results = interleave(python, os.path.join(ROOT, "build", "release", "invar"), o)
    facts = {"cpu": cpu_model(), "threads": o.threads, "xllamacpp": version, "model": os.path.basename(o.model), "date": time.strftime("%Y-%m-%d")}
    print(f"\n{facts['cpu']}, {o.threads} threads, {facts['model']}, xllamacpp {version}, {facts['date']}; tokens/s, median [min-max] of {o.rounds}\n")
    print(f"| {'measure':16} | {'llama.cpp':>22} | {'Invar':>22} | ratio |\n|---|---|---|---|")
    for key, label in (("prompt", f"prompt {o.prompt}"), ("decode", f"decode {o.decode}")):
        cell = lambda v: f"{statistics.median(v):.1f} [{min(v):.1f}-{max(v):.1f}]"
        print(f"| {label:16} | {cell(results['llama.cpp'][key]):>22} | {cell(results['invar'][key]):>22} | {ratio(results, key):.2f} |")
    if o.json:
        json.dump({"facts": facts, "results": results}, open(o.json, "w"), indent=1)


def interleave(python, invar, o):
    """Tokens/s of each round, by engine and measure."""
    engines = {
        "llama.cpp": lambda seed: json.loads(measured_peer(python, o, seed)),
        "invar": lambda seed: invar_result(invar, o),
    }
    results = {name: {"prompt": [], "decode": []} for name in engines}
    for r in range(o.rounds):
        for name, run in engines.items():
            one = run(r)
            for key in ("prompt", "decode"):
                results[name][key].append(one[key])
            print(f"round {r + 1}/{o.rounds} {name}: prompt {one['prompt']:.0f} tokens/s, decode {one['decode']:.1f} tokens/s", file=sys.stderr)
    return results


def ratio(results, key):
    """Invar over llama.cpp: the median of the rounds' ratios, so that a slow stretch of the machine counts for both."""
    return statistics.median(a / b for a, b in zip(results["invar"][key], results["llama.cpp"][key]))


def quiet(argv):
    for attempt in range(4):
        out, wall, foreign = measured(argv)
        if foreign <= 0.1:
            return out
        print(f"other processes used {foreign:.2f} cores, again", file=sys.stderr)
    print("warning: the machine is not quiet", file=sys.stderr)
    return out


def measured_peer(python, o, seed):
    return quiet([python, "-c", PEER_PROGRAM, o.model, str(o.threads), str(o.prompt), str(o.decode), str(seed)]).strip().splitlines()[-1]


def invar_result(invar, o):
    out = json.loads(quiet([invar, "bench", "--model", o.model, "--threads", str(o.threads), "--prompt", str(o.prompt),
                            "--decode", str(o.decode), "--depth", "0", "--sequences", "1", "--reps", "1", "--json"]))
    results = {r["name"]: r["median_tokens_per_s"] for r in out["results"]}
    return {"prompt": results[f"prompt {o.prompt}"], "decode": results["decode, depth 0"]}


if __name__ == "__main__":
    main()
