"""Input of the worst kind: answered rightly or refused, in bounded memory, while another stream keeps its pace; nothing of
it is left behind."""
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time

from harness import Cases, Server, Wire, head_text, main, request_text, script_file

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
RULES = [{"when": {"equals": "pace"}, "text": "tick " * 20000, "group_ms": 40},
         {"when": {"equals": "slow"}, "text": "tick " * 2000, "group_ms": 20},
         {"text": "fine"}]
MiB = 1 << 20


def chat_body(content, **fields):
    return {"messages": [{"role": "user", "content": content}], **fields}


class Pace:
    """A stream of a token each 40 ms, read by a process of its own: this one is busy with writing what is hostile."""

    def __init__(self, server):
        command = [sys.executable, os.path.abspath(__file__), "--pace", str(server.port)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def finish(self):
        """Frames, seconds, and the longest silence in seconds."""
        out = self.process.communicate("", 60)[0]
        assert self.process.returncode == 0, out
        return json.loads(out)

    @staticmethod
    def child(port):
        server = Server.__new__(Server)
        server.unix_path, server.port = "", port
        ended = threading.Event()
        threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
        with server.open_stream(CHAT, chat_body("pace", max_tokens=20000)) as wire:
            frames, longest, start = 0, 0.0, time.monotonic()
            last = start
            for _ in wire.frames():
                now = time.monotonic()
                longest, last, frames = max(longest, now - last), now, frames + 1
                if frames == 1:
                    print("running", flush=True)
                if ended.is_set():
                    return print(json.dumps([frames, last - start, longest]), flush=True)
        raise AssertionError("the stream ended")


class Hostile(Cases):
    """While all of these run, Pace measures."""

    @classmethod
    def start(cls):
        cls.script = script_file(RULES)
        server = Server("--scripted", cls.script.name, "--ctx", 32768)
        cls.pace = Pace(server)
        cls.idle_kib = server.memory_kib()
        return server

    @classmethod
    def tearDownClass(cls):
        frames, seconds, longest = cls.pace.finish()
        peak = (cls.server.memory_kib("VmHWM") - cls.idle_kib) >> 10
        print(f"the stream beside: {frames / seconds:.1f} tokens/s of 25, longest silence {longest * 1000:.0f} ms; memory grew by {peak} MiB")
        try:
            # A busy machine costs some of it; a server that does its parsing where it sends would cost most of it.
            assert longest < 2, f"the stream beside was silent for {longest:.2f} s"
            assert frames / seconds > 10, "the stream beside lost its pace"
            assert peak < 700, f"memory grew by {peak} MiB"
        finally:
            super().tearDownClass()  # nothing runs, exit code 0

    def tearDown(self):
        self.assertEqual(self.server.post(CHAT, chat_body("still there?")).status, 200)

    def refused(self, path, body, *statuses):
        reply = self.server.post(path, body)
        self.assertIn(reply.status, statuses or (400,), reply.body[:300])
        self.assertTrue(reply.error()["message"])
        self.assertLess(len(reply.body), 4096, "a message that repeats its input")
        return reply

    def test_bodies_of_50_mb(self):
        body = json.dumps(chat_body("x" * (50 * MiB))).encode()
        for fields in ([("Content-Length", len(body))], [("Content-Length", len(body)), ("Expect", "100-continue")]):
            with Wire(self.server) as wire:
                wire.send(head_text("POST", CHAT, fields))
                self.assertEqual(wire.reply().status, 413)  # before it comes
        with Wire(self.server) as wire:  # all of it is sent, in chunks
            wire.send(head_text("POST", CHAT, [("Transfer-Encoding", "chunked")]))
            try:
                for at in range(0, len(body), MiB):
                    piece = body[at:at + MiB]
                    wire.send(b"%x\r\n%s\r\n" % (len(piece), piece))
                wire.send(b"0\r\n\r\n")
            except ConnectionError:
                pass  # the server may have said enough
            try:
                self.assertEqual(wire.reply().status, 413)
            except ConnectionError:
                pass

    def test_bodies_just_below_the_limit(self):
        text = json.dumps(chat_body("x" * (30 * MiB))).encode()
        self.refused(CHAT, text, 400)
        self.refused(COMPLETE, json.dumps({"prompt": "word " * (6 * MiB)}).encode(), 400)
        self.refused(COMPLETE, b'{"prompt": [' + b"1," * (12 * MiB) + b"1]}", 400)
        self.refused(COMPLETE, b'{"prompt": "x", "a": {' + b",".join(b'"%d":0' % i for i in range(2 * MiB)) + b"}}", 400)
        self.refused(CHAT, b'{"messages": [' + b'{"role":"user","content":"a"},' * MiB + b"3]}", 400)

    def test_many_of_them_at_once(self):
        body = b'{"prompt": [' + b"1," * (8 * MiB) + b"1]}"
        statuses = []
        threads = [threading.Thread(target=lambda: statuses.append(self.server.post(COMPLETE, body).status)) for _ in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(len(statuses), 6)
        self.assertLessEqual(set(statuses), {400, 503})

    def test_nested_brackets(self):
        for depth in (65, 100_000):
            for opened, closed in ((b"[", b"]"), (b'{"a":', b"}")):
                nested = opened * depth + b"1" + closed * depth
                self.refused(CHAT, nested)
                self.refused(CHAT, b'{"messages": [{"role": "user", "content": "x"}], "zzz": ' + nested + b"}")
                self.refused(CHAT, opened * depth)
                self.refused("/tokenize", b'{"content": ' + nested + b"}")

    def test_text_that_is_no_unicode(self):
        for bad in (b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\\ud800", b"\\udc00x", b"\\ud800\\ud800", b"\x01",
                    b"\n", b"\\x41", b"\\u12g4"):
            self.refused(CHAT, b'{"messages": [{"role": "user", "content": "a' + bad + b'"}]}')
            self.refused(COMPLETE, b'{"prompt": "' + bad + b'"}')
            self.refused(CHAT, b'{"messages": [{"role": "user", "content": "a"}], "' + bad + b'": 1}')
        self.assertEqual(self.server.post(CHAT, chat_body("a\0b \U0001f642 \ufffe \u202e")).status, 200)

    def test_equal_keys_count_once(self):
        reply = self.server.post(COMPLETE, b'{"prompt": 3, "max_tokens": "x", "prompt": "a", "max_tokens": 1}')
        self.assertEqual((reply.status, reply.json()["usage"]["completion_tokens"]), (200, 1))
        self.refused(COMPLETE, b'{"prompt": "a", "prompt": 3}')
        many = b",".join([b'"temperature": 0'] * 100_000)
        self.assertEqual(self.server.post(COMPLETE, b'{"prompt": "a", ' + many + b"}").status, 200)

    def test_wrong_values_in_every_field(self):
        fields = ("temperature top_p top_k min_p presence_penalty frequency_penalty repetition_penalty repeat_penalty logit_bias seed "
                  "max_tokens max_completion_tokens stop stop_token_ids ignore_eos n stream stream_options logprobs top_logprobs model tools "
                  "tool_choice response_format modalities reasoning_effort chat_template_kwargs continue_final_message add_generation_prompt "
                  "messages prompt echo best_of suffix").split()
        values = ("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e308", "-1e308", "123456789012345678901234567890", "-9223372036854775809",
                  "18446744073709551616", "0.1e-400", "-0", "[]", "{}", '""', "[[]]", '{"":{}}', "true", '"x"', "[null]", "1" + "0" * 5000)
        with Wire(self.server) as wire:
            for path, base in ((CHAT, '"messages":[{"role":"user","content":"x"}]'), (COMPLETE, '"prompt":"x"')):
                for field in fields:
                    for value in values:
                        body = f'{{{base}, "{field}": {value}}}'.encode()
                        wire.send(request_text("POST", path, body))
                        reply = wire.reply()
                        if value in ("NaN", "Infinity", "-Infinity", "1e999", "-1e999") or value.startswith("1000"):
                            self.assertEqual(reply.status, 400, body[:200])
                        self.assertIn(reply.status, (200, 400, 404), body[:200])
                        if reply.status != 200:
                            self.assertTrue(reply.error()["message"], body[:200])

    def test_floods_of_head_fields(self):
        for data in (b"GET /health HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", b"GET /health HTTP/1.1\r\nA: " + b"b" * MiB, b"GET /" + b"a" * MiB, b"G" * MiB,
                     b"\r\n" * 10 + b"GET /health HTTP/1.1\r\n" + b"x" * MiB, b"\0" * 65536, bytes(range(256)) * 256,
                     b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 500 + b"\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
            with Wire(self.server, 60) as wire:
                try:
                    wire.send(data)
                    self.assertIn(wire.reply().status, (400, 414, 431, 501, 505), data[:40])
                except (EOFError, ConnectionError):
                    pass  # told so, but in the middle of what we sent
        with Wire(self.server) as wire:
            wire.send(head_text("POST", CHAT, [("Transfer-Encoding", "chunked")]) + b"2\r\n{}\r\n0\r\n" + b"A: b\r\n" * 1000 + b"\r\n")
            self.assertIn(wire.reply().status, (400, 431))
        for size in (b"ffffffffffffffff", b"7fffffffffffffff", b"10000000000000000", b"-1", b"0x10", b"", b"5 5", b"f" * 5000):
            with Wire(self.server) as wire:
                wire.send(head_text("POST", CHAT, [("Transfer-Encoding", "chunked")]) + size + b"\r\n{}\r\n\r\n")
                self.assertIn(wire.reply().status, (400, 413), size[:40])

    def test_slow_bodies_hold_nobody_up(self):
        wires = []
        for _ in range(100):
            wire = Wire(self.server)
            wire.send(head_text("POST", CHAT, [("Content-Length", 20 * MiB)]) + b'{"messages": ')
            wires.append(wire)
        start = time.monotonic()
        for _ in range(20):
            self.assertEqual(self.server.post(CHAT, chat_body("x")).status, 200)
            for wire in wires:
                wire.send(b" ")
        self.assertLess(time.monotonic() - start, 60)
        for wire in wires:
            wire.close()

    def test_ten_thousand_stop_strings(self):
        self.refused(CHAT, chat_body("x", stop=[f"stop {i}" for i in range(10_000)]))
        self.refused(CHAT, chat_body("x", stop=["x" * 1025]))
        self.refused(CHAT, chat_body("x", stop=[["a"]] * 10_000))
        nasty = ["a" * (1024 - i) + "b" for i in range(1, 65)]
        self.assertEqual(self.server.post(CHAT, chat_body("x", stop=nasty)).status, 200)
        self.refused(CHAT, chat_body("x", logit_bias={str(i): 1 for i in range(10_000)}))
        self.refused(CHAT, chat_body("x", tools=[{"type": "function", "function": {"name": f"f{i}"}} for i in range(10_000)]))

    def test_many_messages_parts_and_names(self):
        self.refused(CHAT, {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}] * 50_000}, 400)
        part = {"type": "text", "text": "a"}
        self.assertIn(self.server.post(CHAT, chat_body([part] * 100_000)).status, (200, 400))
        self.refused(CHAT, {"messages": [{"role": "x" * MiB, "content": "a"}]})
        self.refused(CHAT, chat_body("a", model="m" * MiB), 404)
        self.refused(CHAT, chat_body([{"type": "t" * MiB}]))

    def test_text_that_is_slow_to_tokenize(self):
        for text in ("a" * 200_000, " " * 200_000, "\n" * 200_000, "\u0301" * 100_000, "<|im_start|>" * 20_000, "\U0001f9d1\u200d" * 30_000, "1" * 200_000,
                     "'" * 200_000, "{{" * 50_000 + "{% for x in y %}" * 1000):
            start = time.monotonic()
            self.assertIn(self.server.post("/tokenize", {"content": text}).status, (200, 400))
            self.assertIn(self.server.post(CHAT, chat_body(text)).status, (200, 400), text[:20])
            self.assertLess(time.monotonic() - start, 30, text[:20])

    def test_texts_and_ids_without_a_context_have_bounds_too(self):
        text = "x" * (MiB + 1)
        for path, body, param in (("/tokenize", {"content": text}, "content"), ("/tokenize", {"prompt": text}, "prompt"),
                                  ("/tokenize", chat_body(text), "messages"), ("/apply-template", chat_body(text), "messages"),
                                  ("/detokenize", {"tokens": [1] * (MiB // 4 + 1)}, "tokens"), ("/tokenize", {"content": "1" * (MiB // 2)}, "content")):
            error = self.refused(path, body).error()
            self.assertEqual(error["param"], param)
            self.assertRegex(error["message"], r"the (1048576 bytes|262144) that are allowed")
        reply = self.server.post("/tokenize", {"content": "word " * 200_000, "with_pieces": True, "return_token_strs": True})
        self.assertEqual(reply.status, 200)
        self.assertGreater(reply.json()["count"], 190_000)

    def test_resets_in_mid_stream(self):
        rng = random.Random(200)
        for i in range(200):
            wire = Wire(self.server)
            wire.send(request_text("POST", CHAT, chat_body("slow", stream=rng.random() < 0.8, n=rng.choice((1, 4)))))
            if i % 4:
                wire.socket.settimeout(5)
                try:
                    wire.socket.recv(rng.choice((1, 200, 4000)))
                except socket.timeout:
                    pass
            wire.reset()
        self.server.wait_until(lambda: self.server.metrics()["invar_requests_live"] <= 1,
                               "the reset streams to be freed", 30)

    def test_thousands_of_idle_connections(self):
        before, wires = self.server.memory_kib(), []
        for _ in range(900):
            wires.append(Wire(self.server))
        self.server.wait_until(lambda: self.server.metrics()["invar_http_connections"] > 900, "all connections")
        self.assertLess(self.server.memory_kib() - before, 50 << 10)
        for wire in wires:
            wire.close()

    def test_heads_in_pieces_that_never_end(self):
        wires = [Wire(self.server) for _ in range(50)]
        for wire in wires:
            wire.send(b"GET /health HTTP/1.1\r\nA: ")
        self.assertEqual(self.server.call("GET", "/health").status, 200)
        for wire in wires:
            wire.reset()


class OnModel(Cases):
    @classmethod
    def start(cls):
        return Server("--ctx", 4096)

    def test_resets_in_mid_stream_leave_no_slot(self):
        rng = random.Random(7)
        for _ in range(60):
            wire = Wire(self.server)
            wire.send(request_text("POST", COMPLETE, {"prompt": [rng.randrange(20, 40000) for _ in range(rng.choice((2, 40, 500)))],
                                                      "max_tokens": 2000, "stream": rng.random() < 0.8, "ignore_eos": True,
                                                      "n": rng.choice((1, 2)), "logprobs": rng.choice((None, 5)), "echo": rng.random() < 0.3}))
            if rng.random() < 0.5:
                wire.socket.settimeout(1)
                try:
                    wire.socket.recv(100)
                except socket.timeout:
                    pass
            wire.reset()
        start = time.monotonic()
        self.server.wait_idle(60)
        self.assertEqual(self.server.metrics()["invar_kv_pages_used"], 0)
        self.assertLess(time.monotonic() - start, 60)

    def test_any_ids_and_any_text_are_a_prompt(self):
        rng = random.Random(8)
        for prompt in ([0] * 50, [49151] * 50, [2] * 50, list(range(17)), [rng.randrange(49152) for _ in range(200)], "\0" * 50, "\ufffd" * 20, "<|im_start|>" * 20,
                       "\u202e\u0301" * 20):
            d = self.server.complete(prompt, max_tokens=4, temperature=2, top_p=1, seed=1, logprobs=5, echo=True, ignore_eos=True)
            self.assertEqual(d["usage"]["completion_tokens"], 4)
        for fields in ({"temperature": 1e-300}, {"temperature": 2, "top_p": 0}, {"top_k": 2**31 - 1}, {"min_p": 1}, {"repetition_penalty": 0.01},
                       {"repetition_penalty": 10}, {"presence_penalty": 2, "frequency_penalty": 2}, {"logit_bias": {str(i): -100 for i in range(2048)}},
                       {"logit_bias": {str(i): 100 for i in range(2048)}}):
            d = self.server.complete("Once upon a time", max_tokens=4, seed=1, logprobs=20, **fields)
            self.assertTrue(d["choices"], fields)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--pace"]:
        Pace.child(int(sys.argv[2]))
    else:
        main()
