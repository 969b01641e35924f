"""The server as a process and a client made of raw sockets, for the tests of this folder. Python's standard library only.

Environment, set by run.sh: INVAR (the program), INVAR_MODEL (SmolLM2-135M-Instruct.Q4_1.gguf), XDG_CACHE_HOME.
"""
import json
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = os.environ.get("INVAR", "")
MODEL = os.environ.get("INVAR_MODEL", "")
MODEL_NAME = "SmolLM2-135M-Instruct.Q4_1"
PATIENCE_S = 240  # for anything that a busy machine may delay


class Reply:
    """Status, fields (names in lower case; the last one of a name counts) and body of an answer."""

    def __init__(self, status, fields, body=b""):
        self.status, self.fields, self.body = status, fields, body

    def json(self):
        return json.loads(self.body)

    def error(self):
        return self.json()["error"]


class Wire:
    """One connection: bytes out, answers in."""

    def __init__(self, server, timeout=PATIENCE_S):
        if server.unix_path:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(timeout)
            self.socket.connect(server.unix_path)
        else:
            self.socket = socket.create_connection(("127.0.0.1", server.port), timeout)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def reset(self):
        """Away without a goodbye: the peer gets an RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def end(self):
        """A FIN: nothing more will be sent."""
        self.socket.shutdown(socket.SHUT_WR)

    def send(self, data):
        self.socket.sendall(data)

    def _more(self):
        data = self.socket.recv(65536)
        self.buffer += data
        return bool(data)

    def at_end(self):
        """Whether the server has closed; what it sent before must have been read."""
        return not self.buffer and not self._more()

    def line(self):
        while b"\r\n" not in self.buffer:
            if not self._more():
                raise EOFError(f"the connection ended in the middle of a line: {self.buffer[:200]!r}")
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line

    def exactly(self, n):
        while len(self.buffer) < n:
            if not self._more():
                raise EOFError(f"the connection ended {n - len(self.buffer)} bytes too early")
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def head(self):
        line = self.line()
        match = re.fullmatch(rb"HTTP/1\.1 (\d\d\d) [ -~]+", line)
        if not match:
            raise ValueError(f"no status line: {line!r}")
        fields = {}
        while line := self.line():
            name, value = line.decode("latin-1").split(":", 1)
            fields[name.lower()] = value.strip()
        return Reply(int(match[1]), fields)

    def chunks(self):
        """The data of a chunked body, chunk by chunk as it comes."""
        while size := int(self.line().split(b";")[0], 16):
            yield self.exactly(size)
            assert self.line() == b"", "a chunk is longer than it says"
        while self.line():
            pass  # trailers

    def reply(self, method="GET"):
        reply = self.head()
        if method == "HEAD" or reply.status in (204, 304) or reply.status < 200:
            return reply
        if reply.fields.get("transfer-encoding") == "chunked":
            reply.body = b"".join(self.chunks())
        elif "content-length" in reply.fields:
            reply.body = self.exactly(int(reply.fields["content-length"]))
        else:
            while self._more():
                pass
            reply.body, self.buffer = self.buffer, b""
        return reply

    def frames(self):
        """The data of an event stream's frames as they come, "[DONE]" included; comments are left out."""
        text = b""
        for chunk in self.chunks():
            text += chunk
            while b"\n\n" in text:
                frame, text = text.split(b"\n\n", 1)
                if frame.startswith(b":"):
                    continue
                assert frame.startswith(b"data: "), frame
                yield frame[6:]
        assert text == b"", f"half a frame at the end: {text!r}"


def head_text(method, path, fields=()):
    lines = [f"{method} {path} HTTP/1.1", "Host: test"] + [f"{k}: {v}" for k, v in fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def request_text(method, path, body=None, fields=()):
    """A request whose body is bytes, or something that becomes JSON."""
    if body is None:
        return head_text(method, path, fields)
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    fields = [("Content-Type", "application/json"), ("Content-Length", len(body)), *fields]
    return head_text(method, path, fields) + body


class Server:
    """`invar serve` on a free port or a unix socket; its log goes to a file. file_bytes: no file of it may get larger."""

    def __init__(self, *flags, model=True, unix_path="", environment=None, ready=True, file_bytes=0):
        self.unix_path, self.port = unix_path, 0
        self.log_file = tempfile.NamedTemporaryFile(prefix="serve-log-")
        command = [PROGRAM, "serve"]
        command += ["--unix", unix_path] if unix_path else ["--port", "0"]
        command += ["--model", MODEL] if model else []
        self.process = subprocess.Popen(command + [str(f) for f in flags], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=self.log_file,
                                        env={**os.environ, **(environment or {})},
                                        preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes)))
                                        if file_bytes else None)
        if ready:
            self.wait_until_ready()

    def wait_until_ready(self):
        self.wait_until(lambda: " is served at " in self.log() or self.process.poll() is not None,
                        "the server to listen")
        if self.process.poll() is not None:
            raise RuntimeError(f"invar serve ended with {self.process.returncode}: {self.log()}")
        if not self.unix_path:
            self.port = int(re.search(r"http://127\.0\.0\.1:(\d+)/v1", self.log())[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def log(self):
        with open(self.log_file.name, errors="replace") as f:
            return f.read()

    def wait_until(self, condition, what, seconds=PATIENCE_S):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"waited {seconds} s for {what}; log: {self.log()[-2000:]}")
            time.sleep(0.02)

    def call(self, method, path, body=None, fields=()):
        with Wire(self) as wire:
            wire.send(request_text(method, path, body, [*fields, ("Connection", "close")]))
            return wire.reply(method)

    def post(self, path, body, fields=()):
        return self.call("POST", path, body, fields)

    def answer(self, path, body):
        """The document of a request that must succeed."""
        reply = self.post(path, body)
        assert reply.status == 200, f"{reply.status}: {reply.body[:2000]!r}"
        return reply.json()

    def chat(self, text="The capital of France is", **fields):
        messages = text if isinstance(text, list) else [{"role": "user", "content": text}]
        return self.answer("/v1/chat/completions", {"messages": messages, **fields})

    def complete(self, prompt="The capital of France is", **fields):
        return self.answer("/v1/completions", {"prompt": prompt, **fields})

    def open_stream(self, path, body):
        """A connection on which the head of a stream has arrived."""
        wire = Wire(self)
        wire.send(request_text("POST", path, {**body, "stream": True}))
        reply = wire.head()
        assert reply.status == 200, f"{reply.status}: {wire.buffer[:2000]!r}"
        return wire

    def stream(self, path, body):
        """The frames of a stream that must end well, without its [DONE]."""
        with self.open_stream(path, body) as wire:
            frames = list(wire.frames())
        assert frames[-1] == b"[DONE]", frames[-1]
        return [json.loads(f) for f in frames[:-1]]

    def metrics(self):
        """Sums over labels, by name."""
        sums = {}
        for line in self.call("GET", "/metrics").body.decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                name = name.split("{")[0]
                sums[name] = sums.get(name, 0) + float(value)
        return sums

    def running(self):
        m = self.metrics()
        return m["vllm:num_requests_running"] + m["vllm:num_requests_waiting"] + m["invar_requests_live"]

    def wait_idle(self, seconds=PATIENCE_S):
        """Until the engine has nothing to do, and no request but the one that asks is open."""
        self.wait_until(lambda: self.running() == 0 and self.metrics()["invar_http_requests_open"] <= 1,
                        "running requests to end", seconds)

    def memory_kib(self, what="VmRSS"):
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(rf"^{what}:\s+(\d+) kB", f.read(), re.M)[1])

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds=PATIENCE_S):
        return self.process.wait(seconds)

    def stop(self):
        """Ends it as an administrator would; the exit code must be 0."""
        self.terminate()
        code = self.wait()
        assert code == 0, f"exit code {code}: {self.log()[-2000:]}"

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def script_file(rules):
    """A file for --scripted; lives as long as what is returned."""
    f = tempfile.NamedTemporaryFile("w", suffix=".json", prefix="script-")
    json.dump({"rules": rules}, f)
    f.flush()
    return f


class Cases(unittest.TestCase):
    """Base of the tests: one server for a class, made by start()."""

    longMessage = True
    maxDiff = 4000
    server = None

    @classmethod
    def start(cls):
        return None

    @classmethod
    def setUpClass(cls):
        cls.server = cls.start()

    @classmethod
    def tearDownClass(cls):
        if cls.server is None:
            return
        try:
            cls.server.wait_idle(60)
            cls.server.stop()
        finally:
            cls.server.kill()

    def assert_error(self, reply, status, param=None, code=None, words=()):
        self.assertEqual(reply.status, status, reply.body[:500])
        error = reply.error()
        self.assertEqual({"message", "type", "param", "code"}, set(error))
        self.assertTrue(error["message"] and error["type"])
        if param is not None:
            self.assertEqual(error["param"], param, error)
        if code is not None:
            self.assertEqual(error["code"], code, error)
        for word in words:
            self.assertIn(word, error["message"])


def main():
    """Runs the tests of the calling file; the last line is the sum."""
    if not os.access(PROGRAM, os.X_OK) or not os.path.exists(MODEL):
        print(f"INVAR={PROGRAM!r} or INVAR_MODEL={MODEL!r} is missing; run the tests by ./invar test")
        print("0 passed, 1 failed")
        sys.exit(1)
    program = unittest.main(module="__main__", verbosity=2, exit=False, warnings="ignore")
    result = program.result
    # Of a test with subtests, each failure is listed; it counts once.
    failed = len({getattr(t, "test_case", t).id() for t, _ in result.failures + result.errors})
    failed += len(result.unexpectedSuccesses)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"the servers used {used.ru_utime + used.ru_stime:.0f} s of processor time")
    if result.skipped:
        for test, why in result.skipped:
            print(f"NOT RUN: {test}: {why}")
        print(f"{len(result.skipped)} not run")
    print(f"{max(0, result.testsRun - failed - len(result.skipped))} passed, {failed} failed")
    sys.exit(0 if failed == 0 and result.testsRun > 0 else 1)
