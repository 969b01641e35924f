#!/usr/bin/env python3
"""What `invar serve` costs on this machine, with the targets beside the figures. Python's standard library only.

    python3 bench/server/measure.py [--program build/release/invar] [--model FILE] [--only start,idle,health,render,decode,latency]

start    from the start of the process to the first 200 of /health, packed weights in the page cache
idle     memory of 1,000 idle connections
health   GET /health per second: wrk where it is installed, else a client of this program, which is slower than the server
render   a conversation of 200 messages to token ids: JSON, chat template and tokenizer, and the tokenizer alone
decode   tokens/s of one stream against `invar bench`, runs interleaved
latency  bench_server_latency at 8 and at 64 streams (build it: ninja -C build/release bench_server_latency)

Says how many cores other processes used meanwhile: figures of a busy machine are worth little.
"""
import argparse
import json
import os
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "test", "serve"))
sys.dont_write_bytecode = True


def busy_seconds():
    v = [int(x) for x in open("/proc/stat").readline().split()[1:]]
    return (sum(v[:3]) + sum(v[5:8])) / os.sysconf("SC_CLK_TCK")


def own_seconds(*pids):
    total = sum(os.times()[:4])
    for pid in pids:
        fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


class Section:
    """Prints how busy others kept the machine."""

    def __init__(self, name, server=None):
        self.name, self.pids = name, [server.process.pid] if server else []

    def __enter__(self):
        self.start, self.busy, self.own = time.monotonic(), busy_seconds(), own_seconds(*self.pids)
        return self

    def __exit__(self, *_):
        wall = time.monotonic() - self.start
        others = (busy_seconds() - self.busy - (own_seconds(*self.pids) - self.own)) / wall
        print(f"    [{self.name}: {wall:.1f} s, others used {max(0.0, others):.2f} of {os.cpu_count()} cores]")


def start_times(h, flags, rounds=5):
    """Seconds from the start of the process to the first 200 of /health, once the packed weights are there."""
    times = []
    h.Server(*flags).stop()  # packs
    for _ in range(rounds):
        start = time.monotonic()
        process = subprocess.Popen([h.PROGRAM, "serve", "--port", "18437", "--model", h.MODEL, "--quiet"], stderr=subprocess.DEVNULL)
        while True:
            try:
                with socket.create_connection(("127.0.0.1", 18437), 5) as s:
                    s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                    if s.recv(100).startswith(b"HTTP/1.1 200"):
                        break
            except ConnectionError:
                if process.poll() is not None:
                    raise RuntimeError(f"invar serve ended with {process.returncode}") from None
                time.sleep(0.002)
        times.append(time.monotonic() - start)
        process.terminate()
        process.wait()
    return times


def measure_start(h, flags):
    times = start_times(h, flags)
    print(f"start to /health 200: median {statistics.median(times):.3f} s [{min(times):.3f}-{max(times):.3f}]   (target: below 1 s)")


def measure_idle(h, server):
    before = server.memory_kib()
    wires = [h.Wire(server) for _ in range(1000)]
    server.wait_until(lambda: server.metrics()["invar_http_connections"] > 1000, "all connections")
    silent = server.memory_kib() - before
    for wire in wires:
        wire.send(h.head_text("GET", "/health"))
        assert wire.reply().status == 200
    kept = server.memory_kib() - before
    print(f"1,000 idle connections: {silent / 1024:.1f} MiB, after a request on each {kept / 1024:.1f} MiB   (target: below 50 MB)")
    for wire in wires:
        wire.close()


def measure_health(server):
    url = f"http://127.0.0.1:{server.port}/health"
    if shutil.which("wrk"):
        out = subprocess.run(["wrk", "-t1", "-c16", "-d5s", "--latency", url], capture_output=True, text=True, check=True).stdout
        rate, p99 = re.search(r"Requests/sec:\s+([\d.]+)", out)[1], re.search(r"99%\s+(\S+)", out)[1]
        print(f"/health: {float(rate):,.0f} requests/s, p99 {p99} (wrk, 16 connections, one thread)   (target: above 5,000)")
        return
    # Pipelined, 32 at a time, so that this client is not what is measured.
    request = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.sendall(request)
        size = len(s.recv(4096))
        done, start = 0, time.monotonic()
        while time.monotonic() - start < 5:
            s.sendall(request * 32)
            missing = size * 32
            while missing > 0:
                missing -= len(s.recv(65536))
            done += 32
        rate = done / (time.monotonic() - start)
    print(f"/health: {rate:,.0f} requests/s (pipelined by 32 on one connection; install wrk for better)   (target: above 5,000)")


def measure_render(h):
    words = "the river runs slowly past an old stone bridge where nobody has paid a toll since 1974, and".split()
    messages = [{"role": ("user", "assistant")[i % 2], "content": " ".join(words[(i + k) % len(words)] for k in range(40))} for i in range(200)]
    script = json.dumps({"rules": [{"text": "x"}]})  # the model's text without its weights: no limit but --ctx
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        f.write(script)
        f.flush()
        with h.Server("--quiet", "--ctx", "32768", "--scripted", f.name) as server:
            prompt = server.answer("/apply-template", {"messages": messages})["prompt"]

            def median_ms(body, rounds=20):
                times = []
                with h.Wire(server) as wire:
                    for _ in range(rounds + 1):
                        start = time.monotonic()
                        wire.send(h.request_text("POST", "/tokenize", body))
                        reply = wire.reply()
                        times.append((time.monotonic() - start) * 1e3)
                        assert reply.status == 200, reply.body[:500]
                return statistics.median(times[1:]), reply.json()["count"]

            whole, count = median_ms({"messages": messages})
            text, _ = median_ms({"content": prompt})
            empty, _ = median_ms({"content": "x"})
            print(f"conversation of {len(messages)} messages, {len(prompt) / 1024:.0f} KiB, {count} tokens: {whole:.1f} ms to ids; "
                  f"tokenizing its text alone {text:.1f} ms; a request at all {empty:.2f} ms")


def decode_speeds(h, server, rounds, flags=()):
    """Tokens/s of one stream and of `invar bench` with these flags, of each round."""
    tokens, http, bench = 256, [], []

    def stream():
        body = {"prompt": [1000], "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        with server.open_stream("/v1/completions", body) as wire:
            times = [time.monotonic() for _ in wire.frames()][:tokens]
        return (tokens - 1) / (times[-1] - times[0])

    def native():
        out = subprocess.run([h.PROGRAM, "bench", "--model", h.MODEL, "--decode", str(tokens), "--prompt", "0", "--depth", "0", "--sequences", "1", "--reps", "1", "--json", *flags],
                             capture_output=True, text=True, check=True).stdout
        return next(c["median_tokens_per_s"] for c in json.loads(out)["results"] if "decode" in c["name"])

    stream()
    for _ in range(rounds):
        http.append(stream())
        bench.append(native())
    return http, bench


def measure_decode(h, server, rounds):
    http, bench = decode_speeds(h, server, rounds)
    ratio = statistics.median(http) / statistics.median(bench)
    print(f"one stream: {statistics.median(http):.1f} tokens/s, invar bench {statistics.median(bench):.1f}: {ratio:.1%}   (target: at least 97 %)")
    print(f"    streams {[round(x, 1) for x in http]}, bench {[round(x, 1) for x in bench]}")


def measure_latency(h):
    program = os.path.join(os.path.dirname(h.PROGRAM), "bench", "bench_server_latency")
    if not os.path.exists(program):
        return print("latency: not measured, build bench_server_latency")
    for streams, target in ((8, 0.3), (64, 1.5)):
        out = subprocess.run([program, "--model", h.MODEL, "--streams", str(streams)], capture_output=True, text=True, check=True).stdout
        print(f"{out.strip()}   (target: p99 below {target} ms)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    parser.add_argument("--program", default=os.path.join(ROOT, "build/release/invar"))
    parser.add_argument("--model", default=os.path.join(cache, "invar/models/SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("--only", default="start,idle,health,render,decode,latency")
    parser.add_argument("--rounds", type=int, default=5)
    a = parser.parse_args()
    os.environ["INVAR"], os.environ["INVAR_MODEL"] = os.path.abspath(a.program), os.path.abspath(a.model)
    import harness as h
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    only = a.only.split(",")
    flags = ("--quiet", "--ctx", "1024")
    if "start" in only:
        with Section("start"):
            measure_start(h, flags)
    if "render" in only:
        with Section("render"):
            measure_render(h)
    with h.Server(*flags) as server:
        if "idle" in only:
            with Section("idle", server):
                measure_idle(h, server)
        if "health" in only:
            with Section("health", server):
                measure_health(server)
        if "decode" in only:
            with Section("decode", server):
                measure_decode(h, server, a.rounds)
        server.wait_idle()
        server.stop()
    if "latency" in only:
        with Section("latency"):
            measure_latency(h)


if __name__ == "__main__":
    main()
