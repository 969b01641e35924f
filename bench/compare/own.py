"""What only Invar is measured for: its start, its memory, its server, its steps outside the kernels and beside other work."""
import json
import os
import statistics
import subprocess
import sys

from engines import ROOT
from machine import Failed, output_of
from models import SMOLLM2, is_made

BUSY = [sys.executable, "-c", "while True: pass"]


def harness(program, model):
    """The client and server of the server's benchmark, for this program and model."""
    os.environ["INVAR"], os.environ["INVAR_MODEL"] = program, model
    sys.path.insert(0, os.path.join(ROOT, "bench", "server"))
    import measure
    import harness as h
    h.PROGRAM, h.MODEL = program, model
    return measure, h


class Own:
    """Each measure gives one figure."""

    def __init__(self, invar, path, threads, rounds):
        self.invar, self.path, self.threads, self.rounds = invar, path, threads, rounds

    def bench(self, *flags):
        return json.loads(output_of(self.invar.bench(self.path, self.threads, *flags)))

    def decode_speed(self):
        flags = ("--prompt", "0", "--depth", "0", "--sequences", "1", "--decode", "64", "--reps", "3")
        return self.bench(*flags)["results"][0]["median_tokens_per_s"]

    def start_s(self):
        measure, h = harness(self.invar.program, self.path)
        return statistics.median(measure.start_times(h, ("--quiet",), self.rounds))

    def anonymous_bytes(self):
        """Behind a prompt of 512 tokens, from packed weights."""
        return self.bench("--prompt", "512", "--decode", "8", "--depth", "0", "--sequences", "1", "--reps", "1")["anonymous_bytes"]

    def stream_over_bench(self):
        measure, h = harness(self.invar.program, self.path)
        flags = ("--threads", str(self.threads))
        with h.Server("--quiet", "--ctx", "1024", *flags) as server:
            pairs = zip(*measure.decode_speeds(h, server, self.rounds, flags))
            return statistics.median(http / bench for http, bench in pairs)

    def busy_over_quiet(self):
        """Decode speed beside two busy processes over that without them."""
        ratios = []
        for _ in range(self.rounds):
            quiet = self.decode_speed()
            others = [subprocess.Popen(BUSY) for _ in range(2)]
            try:
                ratios.append(self.decode_speed() / quiet)
            finally:
                for process in others:
                    process.kill()
                    process.wait()
        return statistics.median(ratios)

    def outside_share(self):
        flags = ("--profile", "--prompt", "0", "--depth", "0", "--sequences", "1", "--decode", "64", "--reps", "1")
        return self.bench(*flags)["profiles"][0]["outside_share"]


def measures_of(model):
    if is_made(model):
        return ["start_s", "anonymous_bytes", "stream_over_bench"]
    return ["outside_share", "stream_over_bench", "busy_over_quiet"] if model == SMOLLM2 else []


def measure_alone(results, runner, model, own):
    for name in measures_of(model):
        try:
            results.alone.setdefault(model, {})[name] = value = runner.quietly(f"{model}, {name}", getattr(own, name))
            print(f"{model}, {name}: {value:.4g}", file=sys.stderr)
        except (Failed, OSError, RuntimeError, AssertionError, subprocess.CalledProcessError) as reason:
            results.reasons.setdefault(model, {})[name] = str(reason)
            print(f"{model}, {name}: {reason}", file=sys.stderr)
