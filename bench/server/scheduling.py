#!/usr/bin/env python3
"""What `invar serve` promises about many requests, measured over HTTP. Python's standard library only.

    python3 bench/server/scheduling.py [--program build/release/invar] [--model FILE] [--only stall,prefix,rush] [--plot FILE.svg]

stall    16 streams, then a prompt of 2,000 tokens: the longest pause with --max-stall 200 and without a bound, and
         the 99th percentile of the pauses with --max-stall at one decode step
prefix   32 requests with a common prefix of 1,000 tokens at once, cold; then eight with a known prefix
rush     200 requests at once with --max-queue 64

Says how many cores other processes used meanwhile: figures of a busy machine are worth little.
"""
import argparse
import os
import random
import re
import selectors
import statistics
import time

from measure import ROOT, Section


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))]


class Streams:
    """Streams that one thread reads as bytes come; the moment of every frame is kept."""

    def __init__(self, h, server):
        self.h, self.server, self.selector, self.streams = h, server, selectors.DefaultSelector(), []

    def start(self, prompt, max_tokens):
        wire = self.h.Wire(self.server)
        stream = {"wire": wire, "begin": time.monotonic(), "times": [], "status": 0, "buffer": b"", "done": False, "ended": False}
        body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "stream": True,
                "logit_bias": {"1000": 100}}  # a token that is whole text, so that each has a frame of its own
        wire.send(self.h.request_text("POST", "/v1/completions", body))
        self.selector.register(wire.socket, selectors.EVENT_READ, stream)
        self.streams.append(stream)
        return stream

    def run(self, until):
        while not until():
            for key, _ in self.selector.select(0.05):
                self._read(key.data)

    def _read(self, stream):
        data = stream["wire"].socket.recv(65536)
        now = time.monotonic()
        if not stream["status"]:
            stream["buffer"] += data
            match = re.match(rb"HTTP/1\.1 (\d\d\d)", stream["buffer"])
            stream["status"] = int(match[1]) if match else 0
        frames = data.count(b"data: {")
        stream["times"] += [now] * frames
        stream["ended"] = stream["ended"] or b"[DONE]" in data
        if stream["ended"] or not data or stream["status"] >= 400:
            stream["done"] = True
            self.selector.unregister(stream["wire"].socket)
            stream["wire"].close()

    def finish(self):
        self.run(lambda: all(s["done"] for s in self.streams))


def gaps(streams, since, until):
    """[(moment, pause)] of all streams."""
    found = []
    for stream in streams:
        times = [t for t in stream["times"] if since <= t <= until]
        found += [(b, b - a) for a, b in zip(times, times[1:])]
    return sorted(found)


def ids(rng, n):
    return [rng.randrange(1000, 40000) for _ in range(n)]


def stall_run(h, max_stall_ms, rng):
    """The pauses of 16 streams: two seconds alone, then while a prompt of 2,000 tokens is read."""
    flags = ["--quiet", "--ctx", "4096", "--max-stall", str(max_stall_ms)]
    with h.Server(*flags) as server, Section(f"stall, --max-stall {max_stall_ms}", server):
        streams = Streams(h, server)
        running = [streams.start(ids(rng, 32), 3000) for _ in range(16)]
        streams.run(lambda: all(len(s["times"]) > 20 for s in running))
        for _ in range(2):  # the first one teaches what prompts cost
            begin = time.monotonic()
            streams.run(lambda: time.monotonic() > begin + 2)
            sent = time.monotonic()
            prompt = streams.start(ids(rng, 2000), 1)
            streams.run(lambda: prompt["done"])
            end = time.monotonic()
            streams.run(lambda: time.monotonic() > end + 0.5)
        alone = [g for _, g in gaps(running, begin, sent)]
        beside = gaps(running, sent - 0.2, end + 0.2)
        for stream in running:
            stream["wire"].close()
    return {"alone": alone, "beside": [g for _, g in beside], "ttft": prompt["times"][0] - prompt["begin"],
            "points": [(t - sent, g) for t, g in gaps(running, sent - 1.5, end + 0.5)]}


def measure_stall(h, plot):
    rng = random.Random(1)
    bounded, free = stall_run(h, 200, rng), stall_run(h, 60000, rng)
    step = statistics.median(bounded["alone"])
    for name, run in (("--max-stall 200", bounded), ("without a bound", free)):
        print(f"16 streams, {name}: median pause {1e3 * statistics.median(run['alone']):.1f} ms, longest beside a prompt of 2,000 tokens "
              f"{1e3 * max(run['beside']):.0f} ms; the prompt took {run['ttft']:.1f} s")
    print(f"    target with --max-stall 200: at most {200 + 1e3 * step:.0f} ms")
    tight = stall_run(h, max(1, round(1e3 * step)), rng)
    p99, median = percentile(tight["beside"], 0.99), statistics.median(tight["alone"])
    bare = percentile(tight["alone"], 0.99)
    print(f"16 streams, --max-stall at one decode step ({1e3 * step:.0f} ms): median without the prompt {1e3 * median:.1f} ms, p99 beside it "
          f"{1e3 * p99:.1f} ms = {p99 / median:.2f}x; the prompt took {tight['ttft']:.1f} s   (target: below 2x)")
    print(f"    the machine's own share: p99 without the prompt {1e3 * bare:.1f} ms = {bare / median:.2f}x; median beside it "
          f"{statistics.median(tight['beside']) / median:.2f}x")
    if plot:
        draw(plot, [("without a bound", free), ("--max-stall 200", bounded), (f"--max-stall {round(1e3 * step)}", tight)])


def measure_prefix(h):
    rng = random.Random(2)
    common = ids(rng, 1000)
    with h.Server("--quiet", "--ctx", "4096") as server, Section("prefix", server):
        streams = Streams(h, server)
        for i in range(32):
            streams.start(common + ids(rng, 20), 8)
        streams.finish()
        server.wait_idle()
        computed = server.metrics()["vllm:prompt_tokens_total"]
        late = [s["times"][0] - s["begin"] for s in streams.streams]
        print(f"32 requests with a common prefix of 1,000 tokens and 20 of their own: {computed:.0f} prompt tokens computed "
              f"(once: {1000 + 32 * 20}); first tokens after {min(late):.2f}-{max(late):.2f} s")
        streams = Streams(h, server)
        running = [streams.start(common + ids(rng, 20), 120) for _ in range(8)]
        streams.finish()
        step = statistics.median(g for _, g in gaps(running, running[0]["times"][8], running[0]["times"][-8]))
        alone = []
        for _ in range(5):  # a prompt of 20 tokens: what the suffix costs
            streams = Streams(h, server)
            one = streams.start(ids(rng, 21), 1)
            streams.finish()
            alone.append(one["times"][0] - one["begin"])
        streams, suffix = Streams(h, server), statistics.median(alone)
        while len(streams.streams) < 64:  # always eight at once
            while sum(not s["done"] for s in streams.streams) < 8:
                streams.start(common + ids(rng, 20), rng.randrange(20, 60))
            running = sum(not s["done"] for s in streams.streams)
            streams.run(lambda: sum(not s["done"] for s in streams.streams) < running)
        streams.finish()
        waits = [s["times"][0] - s["begin"] for s in streams.streams[8:]]
        print(f"8 at a time, known prefix: first token after {1e3 * statistics.median(waits):.0f} ms (p90 {1e3 * percentile(waits, 0.9):.0f}); a decode "
              f"step of 8 rows {1e3 * step:.1f} ms, a prompt of 21 tokens alone {1e3 * suffix:.0f} ms   "
              f"(target: below {1e3 * (3 * step + suffix):.0f} ms: three steps and the suffix)")


def measure_rush(h):
    rng = random.Random(3)
    with h.Server("--quiet", "--ctx", "2048", "--max-queue", "64") as server, Section("rush", server):
        def plain():
            streams = Streams(h, server)
            one = streams.start(ids(rng, 64), 64)
            streams.finish()
            return one["times"][-1] - one["begin"]

        before = statistics.median(plain() for _ in range(5))
        streams = Streams(h, server)
        for _ in range(200):
            streams.start(ids(rng, 50), 32)
        streams.finish()
        server.wait_idle()
        after = statistics.median(plain() for _ in range(5))
        kinds = {status: sum(s["status"] == status for s in streams.streams) for status in {s["status"] for s in streams.streams}}
        whole = sum(s["ended"] for s in streams.streams)
        print(f"200 at once with --max-queue 64: {kinds}, {whole} complete; a plain request takes {before:.2f} s before and {after:.2f} s after")


def draw(path, runs):
    """Pauses over time as an SVG: one panel per run, logarithmic."""
    import math
    width, panel, left = 760, 150, 60
    rows = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{panel * len(runs) + 30}" font-family="sans-serif" font-size="11">',
            '<rect width="100%" height="100%" fill="white"/>']
    latest = max(t for _, run in runs for t, _ in run["points"])
    for i, (name, run) in enumerate(runs):
        top, height = i * panel + 20, panel - 35
        y = lambda ms: top + height * (1 - (math.log10(max(ms, 10)) - 1) / 2.5)
        x = lambda t: left + (t + 1.5) / (latest + 1.5) * (width - left - 10)
        rows.append(f'<text x="{left}" y="{top - 6}" font-weight="bold">{name}: longest pause {1e3 * max(run["beside"]):.0f} ms, prompt read in {run["ttft"]:.1f} s</text>')
        for ms in (10, 100, 1000):
            rows.append(f'<line x1="{left}" x2="{width - 10}" y1="{y(ms):.1f}" y2="{y(ms):.1f}" stroke="#ddd"/><text x="4" y="{y(ms) + 4:.1f}">{ms} ms</text>')
        rows.append(f'<line x1="{x(0):.1f}" x2="{x(0):.1f}" y1="{top}" y2="{top + height}" stroke="#c33" stroke-dasharray="3"/>')
        moments = {}
        for t, g in run["points"]:  # the 16 streams of a step lie on each other
            key = round(t, 2)
            moments[key] = max(moments.get(key, 0), g)
        rows += [f'<circle cx="{x(t):.1f}" cy="{y(1e3 * g):.1f}" r="1.6" fill="#247"/>' for t, g in sorted(moments.items())]
    rows.append(f'<text x="{left}" y="{panel * len(runs) + 22}">time; the dashed line: a prompt of 2,000 tokens arrives</text></svg>')
    with open(path, "w") as file:
        file.write("\n".join(rows) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    parser.add_argument("--program", default=os.path.join(ROOT, "build/release/invar"))
    parser.add_argument("--model", default=os.path.join(cache, "invar/models/SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("--only", default="stall,prefix,rush")
    parser.add_argument("--plot", default="")
    a = parser.parse_args()
    os.environ["INVAR"], os.environ["INVAR_MODEL"] = os.path.abspath(a.program), os.path.abspath(a.model)
    import harness as h
    for name, measure in (("stall", lambda: measure_stall(h, a.plot)), ("prefix", lambda: measure_prefix(h)), ("rush", lambda: measure_rush(h))):
        if name in a.only.split(","):
            measure()


if __name__ == "__main__":
    main()
