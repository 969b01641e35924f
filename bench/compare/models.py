"""The models that are compared, and where they come from."""
import json
import math
import os
import subprocess
import sys

from engines import ROOT

sys.path.insert(0, os.path.join(ROOT, "test", "shapes"))
sys.dont_write_bytecode = True
import make_shape  # noqa: E402

SMOLLM2, GEMMA3, MADE_Q4_0, MADE_Q4_K_M = "smollm2-135m", "gemma3-270m", "llama-2b-q4_0", "llama-2b-q4_k_m"
NAMES = [SMOLLM2, GEMMA3, MADE_Q4_0, MADE_Q4_K_M]
FOLDER = os.path.join(ROOT, "build", "compare")


def is_made(name):
    return name in (MADE_Q4_0, MADE_Q4_K_M)


def file_of(name, program):
    """Path of the model's file; fetches or makes it first."""
    if not is_made(name):
        subprocess.run(["bash", os.path.join(ROOT, "packaging", "fetch_model.sh"), name], check=True)
        return json.loads(subprocess.run([program, "pull", name, "--json"], check=True, text=True, stdout=subprocess.PIPE).stdout)["path"]
    path = os.path.join(FOLDER, name + ".gguf")
    if not os.path.exists(path):
        print(f"making {path}", file=sys.stderr)
        os.makedirs(FOLDER, exist_ok=True)
        make_shape.write(make_shape.SHAPES[name](), path + ".part", file_of(SMOLLM2, program))
        os.rename(path + ".part", path)
    return path


def operations_per_prompt_token(name):
    """Multiplications and additions in the matrices of the layers of a made model."""
    return 2 * sum(math.prod(shape) for tensor, _, shape in make_shape.SHAPES[name]().tensors if tensor.startswith("blk.") and len(shape) == 2)


def tests_of(name, steps, quick, deep):
    """In the order in which they run: a prompt, then the depth that goes on from it."""
    if quick:
        return ["prompt:128", "prompt:512", f"decode:0:{steps}", f"sequences:4:{steps}"]
    far = [2048] if deep or not is_made(name) else []
    deepest = [f"decode:8000:{steps}"] if deep else []
    return (["prompt:128", "prompt:512"] + [t for n in far for t in (f"prompt:{n}", f"decode:{n}:{steps}")] + deepest +
            [f"{kind}:{steps}" for kind in ("decode:0", "sequences:4", "sequences:8")])


def warm(path):
    """Into the page cache."""
    with open(path, "rb") as file:
        while file.read(1 << 24):
            pass
