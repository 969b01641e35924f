"""What the drivers of this folder share: their command line, their random token ids, their memory and their output.

    PYTHON DRIVER.py MODEL.gguf THREADS TESTS

TESTS: "prompt:N" (N tokens to the logits of the last one), "decode:DEPTH:STEPS" (steps of one sequence behind DEPTH
tokens), "sequences:N:STEPS" (steps of N sequences, each behind one token), separated by commas. A driver prints a JSON
line after every test, with all that it knows so far: should it abort, the last line holds.
"""
import json
import os
import random
import sys
import time


class Test:
    """kind, and what it asks for: tokens before the steps (of each sequence), steps, sequences."""

    def __init__(self, text):
        self.name = text
        self.kind, *numbers = text.split(":")
        a, b = (*map(int, numbers), 0)[:2]
        self.steps = b
        self.sequences = a if self.kind == "sequences" else 1
        self.prompt = 1 if self.kind == "sequences" else max(1, a)

    def positions(self):
        """What a sequence of it fills."""
        return self.prompt + self.steps


class Report:
    def __init__(self, version):
        self.version, self.start, self.load_s, self.first_token_s, self.speeds = version, time.perf_counter(), 0, 0, {}

    def loaded(self):
        self.load_s = time.perf_counter() - self.start

    def first_token(self):
        self.first_token_s = time.perf_counter() - self.start
        self.write()

    def speed(self, test, tokens_per_s):
        self.speeds[test.name] = tokens_per_s
        self.write()

    def write(self):
        print(json.dumps({"version": self.version, "load_s": self.load_s, "first_token_s": self.first_token_s,
                          "speeds": self.speeds, **memory()}), flush=True)


def memory():
    fields = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
    kib = lambda name: int(fields[name].split()[0])
    return {"anonymous_bytes": kib("RssAnon") << 10, "file_bytes": kib("RssFile") << 10}


def random_ids(count, vocab):
    rng = random.Random(os.urandom(8))  # no engine may know a prompt from before
    return [rng.randrange(vocab) for _ in range(count)]


def arguments():
    if len(sys.argv) != 4:
        sys.exit(f"usage: {sys.argv[0]} MODEL.gguf THREADS TESTS")
    return sys.argv[1], int(sys.argv[2]), [Test(text) for text in sys.argv[3].split(",")]


def timed(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(report, engine, tests):
    """The tests on an engine with begin(sequences), which forgets everything and gets ready for so many, and decode(rows) for
    rows of (token, position, sequence, whether its logits are wanted), which returns when the logits are there."""
    known = 0  # tokens of a prompt that sequence 0 holds
    for test in tests:
        if not (test.kind == "decode" and known == test.prompt):  # a depth whose prompt was measured just before goes on from it
            engine.begin(test.sequences)
            ids = [random_ids(test.prompt, engine.vocab) for _ in range(test.sequences)]
            rows = [(t, i, s, i + 1 == test.prompt) for s in range(test.sequences) for i, t in enumerate(ids[s])]
            prompt_s = timed(lambda: engine.decode(rows))
        if test.kind == "prompt":
            known = test.prompt
            report.speed(test, test.prompt / prompt_s)
            continue
        known = 0
        steps = [[(t, test.prompt + k, s, True) for s, t in enumerate(random_ids(test.sequences, engine.vocab))] for k in range(test.steps)]
        steps_s = timed(lambda: [engine.decode(rows) for rows in steps])
        report.speed(test, test.sequences * test.steps / steps_s)
