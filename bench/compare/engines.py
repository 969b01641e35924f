"""The engines: where they come from, and one run of each. The versions of the peers are pinned here and nowhere else."""
import json
import os
import subprocess
import sys
import venv

from machine import Failed, output_of

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PEERS_FOLDER = os.path.join(ROOT, "build", "peers")
OWN = "Invar"
# Name, also of its folder: the package that pip fetches, its version, and the driver in peers/.
PEERS = {
    "llama.cpp": ("xllamacpp", "2026.10.11549", "llama_cpp_driver.py"),
    "ik_llama.cpp": ("ik-llama-cpp-python", "0.1.5", "ik_llama_cpp_driver.py"),
    "openvino": ("openvino-genai", "2026.4.1.0", "openvino_driver.py"),
}
FOUND = "import sys; from importlib.metadata import version; sys.exit(version(sys.argv[1]) != sys.argv[2])"


def install(name, folder=PEERS_FOLDER):
    """(its Python, its version); fetches it first where that version is not there."""
    package, version, _ = PEERS[name]
    home = os.path.join(folder, name)
    python = os.path.join(home, "bin", "python")
    if not os.path.exists(python):
        venv.create(home, with_pip=True)
    if subprocess.run([python, "-c", FOUND, package, version], stderr=subprocess.DEVNULL).returncode:
        print(f"installing {name} ({package} {version}) into {home}", file=sys.stderr)
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", f"{package}=={version}", "numpy"], check=True)
    return python, version


def key(test):
    """Name of a test without its number of steps."""
    return ":".join(test.split(":")[:2])


class Peer:
    def __init__(self, name, python):
        self.name, self.python = name, python
        self.driver = os.path.join(HERE, "peers", PEERS[name][2])

    def run(self, runner, what, model, threads, tests):
        """(what it measured, None or why it ended early)."""
        argv = [self.python, "-B", self.driver, model, str(threads), ",".join(tests)]
        try:
            out, error = runner.quietly(what, lambda: output_of(argv)), None
        except Failed as failed:
            out, error = failed.output, str(failed)
        lines = [line for line in out.splitlines() if line.startswith('{"version"')]
        result = json.loads(lines[-1]) if lines else {"speeds": {}}
        result["speeds"] = {key(test): speed for test, speed in result["speeds"].items()}
        return result, error


class Invar:
    name = OWN

    def __init__(self, program):
        self.program = program

    def bench(self, model, threads, *flags):
        # Without the prefix cache: the peers' benchmarks have none either.
        return [self.program, "bench", model, "--threads", str(threads), "--prefix-cache", "off", "--json", *flags]

    def pack(self, model, threads):
        """Leaves the packed weights in the cache, so that every round starts from them."""
        output_of(self.bench(model, threads, "--prompt", "1", "--decode", "0", "--reps", "1"))

    def run(self, runner, what, model, threads, tests):
        argv = self.bench(model, threads, *bench_flags(tests))
        try:
            document = json.loads(runner.quietly(what, lambda: output_of(argv)))
        except Failed as failed:
            return {"speeds": {}}, str(failed)
        names = {key(test): wanted(test) for test in tests}
        found = {(r["prompt_tokens"], r["decode_tokens"], r["sequences"]): r["median_tokens_per_s"] for r in document["results"]}
        document["speeds"] = {name: found[want] for name, want in names.items() if want in found}
        document["file_bytes"] = document["resident_bytes"] - document["anonymous_bytes"]
        left_out = [name for name, want in names.items() if want not in found]
        return document, f"did not measure {', '.join(left_out)}" if left_out else None


def wanted(test):
    """(prompt tokens, steps, sequences) of a test, as `invar bench` has them in its results."""
    kind, *numbers = test.split(":")
    a, steps = (*map(int, numbers), 0)[:2]
    return {"prompt": (a, 0, 1), "decode": (max(1, a), steps, 1), "sequences": (1, steps, a)}[kind]


def bench_flags(tests):
    numbers = {"prompt": [], "decode": [], "sequences": []}
    steps = 0
    for test in tests:
        kind, n, *rest = test.split(":")
        numbers[kind].append(n)
        steps = int(rest[0]) if rest else steps
    text = lambda kind, otherwise: ",".join(numbers[kind] or [otherwise])
    return ["--reps", "1", "--prompt", text("prompt", "0"), "--decode", str(steps), "--depth", text("decode", "0"),
            "--sequences", text("sequences", "1")]
