"""Rounds over engines: each runs once in each, so that a slow stretch of the machine meets them all."""
import os
import sys
import time

import models


def say(text):
    print(text, file=sys.stderr, flush=True)


def interleave(results, runner, engines, model, path, tests, rounds, threads):
    models.warm(path)
    results.files[model] = os.path.getsize(path)
    broken = set()  # gave nothing at all, and would not the next time
    for number in range(rounds):
        for engine in engines:
            if engine.name in broken:
                continue
            what, start = f"{model}, round {number + 1}/{rounds}, {engine.name}", time.monotonic()
            result, error = engine.run(runner, what, path, threads, tests)
            results.add(model, engine.name, result)
            speeds = ", ".join(f"{test} {speed:.1f}" for test, speed in result["speeds"].items())
            say(f"{what}: {speeds or 'nothing'} ({time.monotonic() - start:.0f} s){f'; {error}' if error else ''}")
            if not result["speeds"]:
                broken.add(engine.name)
