#!/usr/bin/env python3
"""Invar, llama.cpp, ik_llama.cpp and OpenVINO GenAI on this machine: same file, same threads, rounds interleaved, and what
Invar must reach beside what it reached.

    python3 bench/compare/compare.py [--only MODELS] [--rounds 3] [--threads 2] [--quick] [--json FILE] [--plot FILE.svg]

Fetches the peers, in the versions of engines.py, into build/peers, and makes or fetches the models: SmolLM2 135M, Gemma 3 270M,
and two made files of 1.2 and 1.3 GB. Every engine runs in a process of its own in every round; a round of an engine is repeated,
at most four times, while other processes use more than a tenth of a core (--no-wait: it counts, with a warning). Ratios are
medians of the rounds' ratios. Figures of Invar alone (start, memory, server, busy machine) come last: own.py.
The last line is "N targets met, N missed"; what could not be measured is missed, with the reason. Exit code 1 if any is missed.
"""
import argparse
import json
import os
import subprocess
import sys
import time

import engines
import machine
import models
import plot
import report
import targets
from own import Own, measure_alone
from results import Results
from rounds import interleave, say


def flags():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--only", default=",".join(models.NAMES), help="models, separated by commas (default: all)")
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--threads", type=int, default=2)
    a.add_argument("--decode", type=int, default=64, help="steps of each decode measure")
    a.add_argument("--quick", action="store_true", help="few tests and 16 steps, to see that all works")
    a.add_argument("--deep", action="store_true", help="depth 8000 of all models, and 2048 of the made ones, too")
    a.add_argument("--no-wait", action="store_true", help="count runs of a busy machine")
    a.add_argument("--program", default=os.path.join(engines.ROOT, "build", "release", "invar"))
    a.add_argument("--peers", default=engines.PEERS_FOLDER, help="folder of the peers (default: build/peers)")
    a.add_argument("--json", help="all results, too")
    a.add_argument("--plot", help="bars of the ratios, as SVG")
    o = a.parse_args()
    o.models = o.only.split(",")
    unknown = [m for m in o.models if m not in models.NAMES]
    if unknown:
        a.error(f"--only: no model {unknown[0]!r}; there are {', '.join(models.NAMES)}")
    if min(o.rounds, o.threads, o.decode) < 1:
        a.error("--rounds, --threads and --decode: at least 1")
    if o.threads > os.cpu_count():
        a.error(f"--threads {o.threads}: this machine has {os.cpu_count()} cores")
    if not os.access(o.program, os.X_OK):
        a.error(f"{o.program} is not there: build it, or say --program")
    o.program = os.path.abspath(o.program)
    return o


def peers(folder):
    """Those that could be installed."""
    found = []
    for name, (package, version, _) in engines.PEERS.items():
        try:
            found.append(engines.Peer(name, engines.install(name, folder)[0]))
        except (subprocess.CalledProcessError, OSError) as reason:
            say(f"warning: without {name}: {package} {version} cannot be installed: {reason}")
    return found


def print_all(results, o, kind, tests, names):
    for model in results.runs:
        report.print_model(results, kind, model, [engines.key(t) for t in tests[model]], names)
    chosen, others = targets.applicable(kind, o.models)
    outcomes = [(t.model, targets.outcome(t, results, kind)) for t in chosen]
    report.print_targets(kind, outcomes)
    if others:
        print(f"\n{others} targets belong to models that --only leaves out")
    return outcomes


def main():
    o = flags()
    kind, runner, results = machine.kind(), machine.Runner(not o.no_wait), Results()
    invar, found = engines.Invar(o.program), peers(o.peers)
    names = [engines.OWN, *(p.name for p in found)]
    version = subprocess.run([o.program, "--version"], stdout=subprocess.PIPE, text=True).stdout.splitlines()
    facts = {"date": time.strftime("%Y-%m-%d"), "cpu": machine.cpu_model(), "cores": os.cpu_count(), "kind": kind, "threads": o.threads,
             "rounds": o.rounds, "versions": {engines.OWN: version[0] if version else "", **{p.name: " ".join(engines.PEERS[p.name][:2]) for p in found}}}
    tests = {model: models.tests_of(model, 16 if o.quick else o.decode, o.quick, o.deep) for model in o.models}
    for model in o.models:
        try:
            path = models.file_of(model, o.program)
            invar.pack(path, o.threads)
        except (subprocess.CalledProcessError, OSError, machine.Failed) as reason:
            say(f"warning: without {model}: {reason}")
            continue
        interleave(results, runner, [invar, *found], model, path, tests[model], o.rounds, o.threads)
        measure_alone(results, runner, model, Own(invar, path, o.threads, o.rounds))
    print(f"{facts['cpu']}, {facts['cores']} cores, {o.threads} threads, {o.rounds} rounds, {facts['date']}")
    print("; ".join(f"{name}: {v}" for name, v in facts["versions"].items()))
    outcomes = print_all(results, o, kind, tests, names)
    loudest = max(runner.noise, default=(0, ""))
    if loudest[0] > machine.QUIET_CORES:
        noisy = sum(cores > machine.QUIET_CORES for cores, _ in runner.noise)
        print(f"\nwarning: in {noisy} of {len(runner.noise)} runs other processes used more than {machine.QUIET_CORES} cores, {loudest[0]:.2f} at most ({loudest[1]})")
    write_files(o, kind, facts, tests, results, outcomes)
    met = sum(outcome.met for _, outcome in outcomes)
    print(f"\n{met} targets met, {len(outcomes) - met} missed")
    return 1 if met < len(outcomes) else 0


def write_files(o, kind, facts, tests, results, outcomes):
    if o.json:
        with open(o.json, "w") as file:
            json.dump({"facts": facts, "runs": results.runs, "alone": results.alone, "not_measured": results.reasons,
                       "targets": [{"model": model, **outcome._asdict()} for model, outcome in outcomes]}, file, indent=1)
    if o.plot:
        found = [(model, test, report.best(results, kind, model, engines.key(test))) for model in results.runs for test in tests[model]]
        plot.draw(o.plot, [(model, report.title(test), *best) for model, test, best in found if best])


if __name__ == "__main__":
    sys.exit(main())
