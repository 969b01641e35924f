"""This machine: what it is, and how much of it others use while a program runs."""
import os
import platform
import subprocess
import sys
import tempfile
import time

AVX2, VNNI = "AVX2", "AVX-512 VNNI"  # the two kinds of targets
QUIET_CORES = 0.1
ATTEMPTS = 4


def cpu_field(name):
    for line in open("/proc/cpuinfo"):
        if line.startswith(name):
            return line.split(":", 1)[1].strip()
    return ""


def cpu_model():
    return cpu_field("model name") or platform.processor()


def kind():
    return VNNI if "avx512_vnni" in cpu_field("flags").split() else AVX2


def busy_seconds():
    """Of all cores; what the host took from a virtual machine counts, too."""
    v = [int(x) for x in open("/proc/stat").readline().split()[1:]]
    return (sum(v[:3]) + sum(v[5:8])) / os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """A program ended badly; its message, in one line. output: what it had printed."""

    def __init__(self, message, output):
        super().__init__(message)
        self.output = output


def complaint(text, code):
    """The line of an error output that says most, or the exit code."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if any(word in line.lower() for word in ("assert", "error", "failed", "cannot", "unsupported"))]
    end = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
    return f"{end}: {(telling or lines or ['no message'])[-1][:200]}"


def watched(action):
    """(what it gives, cores that others used meanwhile). Its processes must have ended."""
    busy, times, start = busy_seconds(), os.times(), time.monotonic()
    value = action()
    own = sum(os.times()[:4]) - sum(times[:4])
    return value, max(0.0, (busy_seconds() - busy - own) / (time.monotonic() - start))


def output_of(argv, timeout=3600):
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            out = process.communicate(timeout=timeout)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            raise Failed(f"took more than {timeout} s", process.communicate()[0]) from None
        except BaseException:
            process.kill()
            process.wait()
            raise
        if process.returncode:
            errors.seek(0)
            raise Failed(complaint(errors.read(), process.returncode), out)
    return out


class Runner:
    """Does one thing after the other; what it gives counts when others used at most a tenth of a core, if it may wait for that."""

    def __init__(self, wait):
        self.wait, self.noise = wait, []  # noise: (cores, what) of what counts

    def quietly(self, what, action):
        for attempt in range(ATTEMPTS if self.wait else 1):
            value, foreign = watched(action)
            if foreign <= QUIET_CORES:
                break
            print(f"{what}: other processes used {foreign:.2f} cores", file=sys.stderr)
        self.noise.append((foreign, what))
        return value
