"""The server as a process: HTTP in all its forms, clients that leave, keys, signals. Answers come from scripts, so no
model's speed matters."""
import json
import os
import pathlib
import signal
import socket
import ssl
import stat
import subprocess
import tempfile
import threading
import time

from harness import MODEL, MODEL_NAME, PATIENCE_S, PROGRAM, Cases, Server, Wire, head_text, main, request_text, script_file

CHAT = "/v1/chat/completions"
WORDS = "one two three four five six seven eight nine ten"
RULES = [
    {"when": {"equals": "slow"}, "text": "tick " * 2000, "group_ms": 50},
    {"when": {"equals": "short"}, "groups": ["Hel", "lo", "."], "group_ms": 100},
    {"when": {"equals": "late"}, "text": "late", "first_ms": 3000},
    {"when": {"equals": "soon"}, "text": "soon", "first_ms": 300},
    {"when": {"equals": "emoji"}, "text": "caf\u00e9 \U0001f9d1\u200d\U0001f680 \u65e5\u672c\u8a9e"},
    {"when": {"equals": "busy"}, "error": {"status": 429, "message": "try later", "retry_after_s": 7}},
    {"when": {"equals": "fault"}, "groups": ["a", "b", "c"], "fail": {"after_groups": 2, "status": 500, "message": "the disk is gone"}},
    {"when": {"equals": "crash"}, "groups": ["a", "b", "c"], "cut": {"after_groups": 2}},
    {"when": {"equals": "huge"}, "text": "word " * 60000},
    {"when": {"tools": True, "turn": 1}, "text": "<tool_call>{{tool}} {{arguments}}</tool_call>"},
    {"when": {"contains": "one"}, "text": WORDS},
    {"text": "You said: {{last}}"},
]


def chat_body(text, **fields):
    return {"messages": [{"role": "user", "content": text}], **fields}


def chat_text(text, fields=(), **body):
    return request_text("POST", CHAT, chat_body(text, **body), fields)


def said(reply):
    return reply.json()["choices"][0]["message"]["content"]


class Scripted(Cases):
    flags = ()

    @classmethod
    def start(cls):
        cls.script = script_file(RULES)
        return Server("--scripted", cls.script.name, *cls.flags)

    def wire(self):
        wire = Wire(self.server)
        self.addCleanup(wire.close)
        return wire


class Http(Scripted):
    def test_a_connection_is_kept_and_pipelined_requests_are_answered_in_order(self):
        wire = self.wire()
        for text in ("a", "b"):
            wire.send(chat_text(text))
            self.assertEqual(said(wire.reply()), f"You said: {text}")
        wire.send(chat_text("x") + head_text("GET", "/health") + chat_text("short", stream=True) + head_text("GET", "/v1/models") +
                  chat_text("y"))
        self.assertEqual(said(wire.reply()), "You said: x")
        self.assertEqual(wire.reply().json(), {"status": "ok"})
        self.assertEqual(wire.head().status, 200)
        self.assertEqual(list(wire.frames())[-1], b"[DONE]")
        self.assertEqual(wire.reply().json()["object"], "list")
        self.assertEqual(said(wire.reply()), "You said: y")

    def test_a_request_in_single_bytes(self):
        wire = self.wire()
        for byte in chat_text("slowly typed", [("Connection", "close")]):
            wire.send(bytes([byte]))
        self.assertEqual(said(wire.reply()), "You said: slowly typed")
        self.assertTrue(wire.at_end())

    def test_a_chunked_request_with_extensions_and_trailers(self):
        body = json.dumps(chat_body("chunky")).encode()
        data = head_text("POST", CHAT, [("Transfer-Encoding", "chunked"), ("Trailer", "X-Sum")])
        for at in range(0, len(body), 7):
            piece = body[at:at + 7]
            data += b"%x;name=value\r\n%s\r\n" % (len(piece), piece)
        data += b"0\r\nX-Sum: 1\r\n\r\n"
        wire = self.wire()
        wire.send(data + head_text("GET", "/health"))
        self.assertEqual(said(wire.reply()), "You said: chunky")
        self.assertEqual(wire.reply().status, 200)

    def test_expect_100_continue(self):
        body = json.dumps(chat_body("patient")).encode()
        wire = self.wire()
        wire.send(head_text("POST", CHAT, [("Expect", "100-continue"), ("Content-Length", len(body))]))
        self.assertEqual(wire.head().status, 100)
        wire.send(body)
        self.assertEqual(said(wire.reply()), "You said: patient")
        wire.send(head_text("POST", "/nowhere", [("Expect", "100-continue"), ("Content-Length", len(body))]))
        self.assertEqual(wire.reply().status, 404)
        wire = self.wire()
        wire.send(head_text("POST", CHAT, [("Expect", "42-maybe"), ("Content-Length", len(body))]))
        self.assertEqual(wire.reply().status, 417)

    def test_http_1_0_gets_no_chunks(self):
        for stream in (False, True):
            body = json.dumps(chat_body("short", stream=stream)).encode()
            wire = self.wire()
            wire.send(b"POST %s HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(body)) + body)
            reply = wire.reply()
            self.assertNotIn("transfer-encoding", reply.fields)
            self.assertTrue(wire.at_end())
            if stream:
                frames = reply.body.split(b"\n\n")
                self.assertEqual(frames[-2:], [b"data: [DONE]", b""])
                self.assertNotIn("content-length", reply.fields)
            else:
                self.assertEqual(said(reply), "Hello.")

    def test_head_options_404_and_405(self):
        wire = self.wire()
        wire.send(head_text("HEAD", "/v1/models") + head_text("GET", "/v1/models"))
        head, get = wire.reply("HEAD"), wire.reply()
        self.assertEqual((head.status, head.fields["content-length"]), (200, str(len(get.body))))
        options = self.server.call("OPTIONS", CHAT)
        self.assertEqual((options.status, options.body), (204, b""))
        self.assertIn("POST", options.fields["allow"])
        self.assertNotIn("access-control-allow-origin", options.fields)
        self.assertEqual(self.server.call("OPTIONS", "*").status, 204)
        for method, path in (("GET", CHAT), ("PUT", CHAT), ("DELETE", "/v1/models"), ("POST", "/health"), ("POST", "/metrics"),
                             ("POST", "/v1/models"), ("BREW", CHAT)):
            reply = self.server.call(method, path)
            self.assert_error(reply, 405)
            self.assertTrue(reply.fields["allow"])
        for path in ("/", "/v1", "/v1/", "/v1/chat", CHAT + "/", "/v2/models", "//v1/models", "/V1/models", "/v1/embeddings"):
            self.assert_error(self.server.call("GET", path), 404)

    def test_paths_are_decoded_and_queries_ignored(self):
        self.assertEqual(self.server.call("GET", "/v1/models/SmolLM2%2D135M-Instruct.Q4_1?x=/../..").status, 200)
        self.assertEqual(self.server.call("GET", "http://elsewhere/health").status, 200)
        for path in ("/../../etc/passwd", "/v1/models/../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/v1/models/%00", "/health%00",
                     "/v1/models/..%2f..%2f..%2fetc%2fpasswd", "/health/..", "/./health"):
            reply = self.server.call("GET", path)
            self.assertIn(reply.status, (400, 404), path)
            self.assertNotIn(b"root:", reply.body)

    def test_ambiguous_lengths_are_refused(self):
        body = b'{"prompt": "x"}'
        for fields in ([("Content-Length", "5"), ("Content-Length", "6")], [("Content-Length", "5"), ("Transfer-Encoding", "chunked")],
                       [("Transfer-Encoding", "gzip, chunked")], [("Transfer-Encoding", "chunked, chunked")], [("Content-Length", "+5")],
                       [("Content-Length", "0x5")], [("Content-Length", "-1")], [("Content-Length", "99999999999999999999")],
                       [("Transfer-Encoding", "xchunked")], [("Content-Length", "5, 6")], [("Content-Length ", "5")]):
            with self.subTest(fields=fields):
                wire = self.wire()
                wire.send(head_text("POST", "/v1/completions", fields) + body)
                self.assertIn(wire.reply().status, (400, 413, 501))
                self.assertTrue(wire.at_end())

    def test_compressed_bodies_are_refused(self):
        for coding in ("gzip", "br", "zstd"):
            reply = self.server.post(CHAT, chat_body("x"), [("Content-Encoding", coding)])
            self.assert_error(reply, 415)

    def test_no_cors_by_default(self):
        reply = self.server.post(CHAT, chat_body("x"), [("Origin", "https://a.example")])
        self.assertEqual([f for f in reply.fields if f.startswith("access-control")], [])

    def test_every_answer_has_its_request_id(self):
        ids = {self.server.call("GET", "/health").fields["x-request-id"] for _ in range(5)}
        self.assertEqual(len(ids), 5)
        with self.server.open_stream(CHAT, chat_body("short")) as wire:
            list(wire.frames())


    def test_a_tls_client_is_told_at_once_that_this_is_plain_http(self):
        start = time.monotonic()
        context = ssl.create_default_context()
        with Wire(self.server) as wire, self.assertRaises(ssl.SSLError):
            context.wrap_socket(wire.socket, server_hostname="localhost")
        with Wire(self.server) as wire:
            wire.send(b"\x16\x03\x01")
            self.assert_error(wire.reply(), 400, words=["plain HTTP"])
            self.assertTrue(wire.at_end())
        self.assertLess(time.monotonic() - start, 10)  # the deadline of a head is 15 s


class Answers(Scripted):
    """The shape of answers whose tokens are known."""

    def test_frames_come_as_the_groups_do(self):
        with self.server.open_stream(CHAT, chat_body("short")) as wire:
            arrivals = [(time.monotonic(), frame) for frame in wire.frames()]
        deltas = [json.loads(f)["choices"][0]["delta"] for _, f in arrivals[:-1]]
        self.assertEqual([d.get("content") for d in deltas], ["", "Hel", "lo", ".", None])
        self.assertGreater(arrivals[3][0] - arrivals[1][0], 0.15)

    def test_characters_of_several_tokens_are_whole_in_every_frame(self):
        chunks = self.server.stream(CHAT, chat_body("emoji", logprobs=True))
        texts = [c["choices"][0]["delta"].get("content", "") for c in chunks]
        self.assertNotIn("\ufffd", "".join(texts))
        self.assertEqual("".join(texts), RULES[4]["text"])
        entries = [e for c in chunks if c["choices"][0]["logprobs"] for e in c["choices"][0]["logprobs"]["content"]]
        self.assertEqual(bytes(b for e in entries for b in e["bytes"]).decode(), RULES[4]["text"])
        self.assertGreater(len(entries), len(texts) - 2)

    def test_stop_strings_at_every_place(self):
        for begin in range(0, len(WORDS) - 6, 3):
            stop = WORDS[begin:begin + 6]
            chunks = self.server.stream(CHAT, chat_body("one", stop=[stop]))
            self.assertEqual("".join(c["choices"][0]["delta"].get("content", "") for c in chunks), WORDS.split(stop)[0], stop)
            self.assertEqual(chunks[-1]["choices"][0]["finish_reason"], "stop")

    def test_the_first_of_several_stop_strings_wins(self):
        d = self.server.chat("one", stop=["seven", "ree f", "four", "e four f"])
        self.assertEqual(d["choices"][0]["message"]["content"], "one two th")

    def test_errors_of_a_script(self):
        reply = self.server.post(CHAT, chat_body("busy"))
        self.assert_error(reply, 429)
        self.assertEqual(reply.fields["retry-after"], "7")
        with self.server.open_stream(CHAT, chat_body("fault")) as wire:
            *frames, last = list(wire.frames())
        self.assertEqual("".join(json.loads(f)["choices"][0]["delta"]["content"] for f in frames), "ab")
        self.assertEqual(json.loads(last)["error"]["message"], "the disk is gone")
        self.assert_error(self.server.post(CHAT, chat_body("fault")), 500)
        with self.server.open_stream(CHAT, chat_body("crash")) as wire, self.assertRaises((EOFError, ConnectionError)):
            list(wire.frames())

    def test_tools_reach_the_script(self):
        tool = {"type": "function", "function": {"name": "get_weather", "parameters": {
            "type": "object", "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]}}, "required": ["city", "unit"]}}}
        d = self.server.chat("weather?", tools=[tool])
        text = d["choices"][0]["message"]["content"] or ""
        if d["choices"][0]["message"].get("tool_calls"):
            call = d["choices"][0]["message"]["tool_calls"][0]["function"]
            self.assertEqual((call["name"], set(json.loads(call["arguments"]))), ("get_weather", {"city", "unit"}))
        else:
            self.assertIn('get_weather {"city"', text)


class Leaving(Scripted):
    """After every one of them, nothing runs."""

    def tearDown(self):
        self.server.wait_idle()

    def test_a_fin_lets_a_stream_go_on(self):
        wire = self.wire()
        wire.send(chat_text("short", stream=True))
        wire.end()
        self.assertEqual(wire.head().status, 200)
        self.assertEqual(list(wire.frames())[-1], b"[DONE]")

    def test_a_closed_stream_is_freed_at_the_next_write(self):
        wire = self.server.open_stream(CHAT, chat_body("slow"))
        next(wire.frames())
        self.assertGreaterEqual(self.server.running(), 1)
        wire.close()
        start = time.monotonic()
        self.server.wait_idle(20)
        self.assertLess(time.monotonic() - start, 15)

    def test_a_reset_stream_is_freed(self):
        wires = [self.server.open_stream(CHAT, chat_body("slow")) for _ in range(8)]
        for wire in wires:
            wire.reset()
        self.server.wait_idle(20)

    def test_an_answer_within_a_second_of_the_fin_arrives(self):
        wire = self.wire()
        wire.send(chat_text("soon"))
        wire.end()
        self.assertEqual(said(wire.reply()), "soon")

    def test_a_request_without_stream_is_cancelled_a_second_after_the_fin(self):
        before = self.server.metrics()["vllm:request_success_total"]
        wire = self.wire()
        wire.send(chat_text("slow"))
        self.server.wait_until(lambda: self.server.running() > 0, "the request to run")
        wire.end()
        start = time.monotonic()
        self.server.wait_idle(30)
        self.assertGreater(time.monotonic() - start, 0.5)
        self.assertGreater(self.server.metrics()["vllm:request_success_total"], before)

    def test_a_reset_while_a_body_arrives(self):
        for length in (10, 100000):
            wire = self.wire()
            wire.send(head_text("POST", CHAT, [("Content-Length", length)]) + b"{")
            wire.reset()

    def test_a_slow_reader_is_bounded_and_cancelled(self):
        before = self.server.metrics()["invar_http_slow_readers_total"]
        memory = self.server.memory_kib()
        wire = self.server.open_stream(CHAT, chat_body("huge", max_tokens=60000, ignore_eos=True))
        self.server.wait_until(lambda: self.server.metrics()["invar_http_slow_readers_total"] > before, "the slow reader to go")
        self.server.wait_idle(60)
        self.assertLess(self.server.memory_kib() - memory, 64 << 10)
        wire.close()


class Keys(Scripted):
    keys = ("key-one", "key-two")

    @classmethod
    def start(cls):
        cls.key_file = tempfile.NamedTemporaryFile("w")
        cls.key_file.write("# comment\n" + "\r\n".join(cls.keys) + "\n")
        cls.key_file.flush()
        cls.script = script_file(RULES)
        server = Server("--scripted", cls.script.name, "--api-key", cls.key_file.name, "--api-key", "third", "--served-model-name",
                        "small,gpt-4o-mini", "--cors-origin", "https://a.example")
        server.call = lambda m, p, b=None, f=(): Server.call(server, m, p, b, [*f, ("Authorization", "Bearer third")] if not any(
            k.lower() in ("authorization", "x-api-key", "x-none") for k, _ in f) else f)
        return server

    def test_keys_in_both_fields(self):
        for fields in ([("Authorization", "Bearer key-one")], [("x-api-key", "key-two")], [("authorization", "bearer third")]):
            self.assertEqual(self.server.call("GET", "/v1/models", None, fields).status, 200)
        for fields in ([("X-None", "1")], [("Authorization", "Bearer key-on")], [("Authorization", "Bearer key-one2")],
                       [("Authorization", "Basic key-one")], [("x-api-key", "")], [("Authorization", "key-one")]):
            for method, path, body in (("GET", "/v1/models", None), ("POST", CHAT, chat_body("x")), ("GET", "/metrics", None)):
                reply = self.server.call(method, path, body, fields)
                self.assert_error(reply, 401, code="invalid_api_key")
                self.assertIn("www-authenticate", reply.fields)
        self.assertEqual(self.server.call("GET", "/health", None, [("X-None", "1")]).status, 200)

    def test_served_names(self):
        for name in ("small", "gpt-4o-mini"):
            d = self.server.chat("x", model=name)
            self.assertEqual(d["model"], "small")
            self.assertEqual(self.server.call("GET", "/v1/models/" + name).json()["id"], name)
        self.assert_error(self.server.post(CHAT, chat_body("x", model=MODEL_NAME)), 404, "model", "model_not_found")
        self.assertEqual([m["id"] for m in self.server.call("GET", "/v1/models").json()["data"]], ["small", "gpt-4o-mini"])

    def test_cors_for_the_listed_origin_only(self):
        def allowed(origin, method="GET", path="/v1/models"):
            reply = self.server.call(method, path, None, [("Origin", origin), ("Authorization", "Bearer third"),
                                                          ("Access-Control-Request-Method", "POST")])
            self.assertNotIn("access-control-allow-credentials", reply.fields)
            return reply.fields.get("access-control-allow-origin")
        self.assertEqual(allowed("https://a.example"), "https://a.example")
        self.assertEqual(allowed("https://a.example", "OPTIONS", CHAT), "https://a.example")
        for origin in ("https://b.example", "https://a.example.b", "null", "http://a.example"):
            self.assertIsNone(allowed(origin))

    def test_keys_are_not_in_the_log(self):
        self.server.call("GET", "/v1/models", None, [("Authorization", "Bearer key-one")])
        self.server.call("GET", "/v1/models", None, [("Authorization", "Bearer wrong-one")])
        self.server.wait_until(lambda: self.server.log().count('"path":"/v1/models"') >= 2, "the lines of the requests")
        self.assertNotIn("key-one", self.server.log())
        self.assertNotIn("wrong-one", self.server.log())


class Processes(Cases):
    """How the program starts and ends."""

    def scripted(self, *flags, **more):
        self.script = script_file(RULES)
        server = Server("--scripted", self.script.name, *flags, **more)
        self.addCleanup(server.kill)
        return server

    def fails(self, code, word, *flags, model=True):
        """Ends at once with a short message."""
        anywhere = [] if {"--port", "--unix"} & set(flags) else ["--port", "0"]
        command = [PROGRAM, "serve", *anywhere, *(["--model", MODEL] if model else []), *map(str, flags)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(word, done.stderr)
        lines = [line for line in done.stderr.splitlines() if not line.startswith("packing ")]
        self.assertLessEqual(len(lines), 2, done.stderr)

    def test_sigterm_lets_streams_end(self):
        server = self.scripted()
        idle = Wire(server)
        stream = server.open_stream(CHAT, chat_body("short"))
        server.terminate()
        frames = list(stream.frames())
        self.assertEqual(frames[-1], b"[DONE]")
        self.assertEqual("".join(json.loads(f)["choices"][0]["delta"].get("content", "") for f in frames[:-1]), "Hello.")
        self.assertEqual(server.wait(), 0)
        self.assertTrue(idle.at_end())
        with self.assertRaises(ConnectionError):
            Wire(server)

    def test_nothing_new_while_draining(self):
        server = self.scripted()
        stream, idle = server.open_stream(CHAT, chat_body("slow")), Wire(server)
        frames = stream.frames()
        next(frames)
        server.terminate()
        server.wait_until(lambda: self.cannot_connect(server), "the port to close", 30)
        try:
            idle.send(head_text("GET", "/health"))
            self.assertTrue(idle.at_end() or idle.reply().status == 503)
        except ConnectionError:
            pass
        self.assertIsNone(server.process.poll())
        server.terminate()  # the second one stops at once
        start = time.monotonic()
        server.wait(30)
        self.assertLess(time.monotonic() - start, 10)
        with self.assertRaises((EOFError, ConnectionError)):
            list(frames)

    @staticmethod
    def cannot_connect(server):
        try:
            Wire(server).close()
            return False
        except OSError:  # also: there is no socket yet
            return True

    def test_sigint_ends_an_idle_server(self):
        server = self.scripted()
        server.process.send_signal(signal.SIGINT)
        self.assertEqual(server.wait(), 0)

    def test_a_unix_socket(self):
        path = os.path.join(tempfile.mkdtemp(), "s")
        server = self.scripted(unix_path=path)
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        self.assertEqual(said(server.post(CHAT, chat_body("u"))), "You said: u")
        server.stop()
        self.assertFalse(os.path.exists(path))

    def loading(self):
        """A server that listens and cannot be ready, until somebody writes a script into `pipe`."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        pipe = os.path.join(folder.name, "script")
        os.mkfifo(pipe)
        server = Server("--scripted", pipe, unix_path=os.path.join(folder.name, "s"), ready=False)
        self.addCleanup(server.kill)
        server.wait_until(lambda: not self.cannot_connect(server), "the server to listen")
        return server, pipe

    def test_a_client_that_comes_while_the_model_loads_is_answered(self):
        server, pipe = self.loading()
        with Wire(server) as wire:
            wire.send(chat_text("early") + head_text("GET", "/health"))
            self.assertNotIn(" is served at ", server.log())
            with open(pipe, "w") as f:
                json.dump({"rules": RULES}, f)
            self.assertEqual(said(wire.reply()), "You said: early")
            self.assertEqual(wire.reply().status, 200)
        server.stop()

    def test_a_signal_while_the_model_loads_ends_the_server(self):
        server, _ = self.loading()
        server.terminate()
        self.assertEqual(server.wait(), 0)
        self.assertFalse(os.path.exists(server.unix_path))

    def test_wrong_starts_are_short_errors(self):
        with tempfile.TemporaryDirectory() as folder:
            empty, bad, garbage = (os.path.join(folder, n) for n in ("empty", "bad", "garbage.gguf"))
            open(empty, "w").close()
            for path, text in ((bad, "k\u00e4se\n"), (garbage, "GGUF?")):
                with open(path, "w") as f:
                    f.write(text)
            self.fails(2, "--api-key", "--api-key", empty)
            self.fails(2, "--api-key", "--api-key", bad)
            self.fails(2, "--api-key", "--api-key", folder + "/none")
            self.fails(2, "--api-key", "--api-key", folder)
            self.fails(2, "--api-key", "--api-key", "")
            self.fails(1, "garbage.gguf", "--model", garbage, model=False)
            self.fails(1, "none.gguf", "--model", folder + "/none.gguf", model=False)
            self.fails(2, "--prot", "--prot", "1")
            self.fails(2, "--port", "--port", "70000")
            self.fails(2, "--served-model-name", "--served-model-name", "a,")
            self.fails(1, "--scripted", "--scripted", folder + "/none.json")
            self.fails(1, "--scripted", "--scripted", garbage)
            self.fails(1, "--chat-template", "--chat-template", folder + "/none.jinja")
            # These come before the model is looked at, and so before a long wait for it.
            none = ("--model", folder + "/none.gguf")
            server = self.scripted()
            self.fails(1, f"port {server.port} ", "--port", server.port, *none, model=False)
            self.fails(1, "--host 256.1.1.1", "--host", "256.1.1.1", *none, model=False)
            self.fails(1, "--unix", "--unix", folder + "/none/s", *none, model=False)
            self.fails(1, "--request-log", "--request-log", garbage, *none, model=False)
            # What was made for nothing is gone.
            self.fails(1, "none.gguf", "--unix", folder + "/s", *none, model=False)
            self.assertFalse(os.path.exists(folder + "/s"))

    def test_idle_connections_are_closed_after_the_given_time(self):
        server = self.scripted("--idle-timeout", "1")
        wire = Wire(server)
        wire.send(head_text("GET", "/health"))
        self.assertEqual(wire.reply().status, 200)
        start = time.monotonic()
        self.assertTrue(wire.at_end())
        self.assertGreater(time.monotonic() - start, 0.8)
        server.stop()

    def test_a_request_has_its_time(self):
        server = self.scripted("--request-timeout", "1")
        self.assert_error(server.post(CHAT, chat_body("late")), 504)
        with server.open_stream(CHAT, chat_body("slow")) as wire:
            last = list(wire.frames())[-1]
        self.assertIn("error", json.loads(last))
        server.wait_idle()
        server.stop()

    def test_connections_above_the_limit_are_told_so(self):
        server = self.scripted("--max-connections", "4")
        wires = [Wire(server) for _ in range(4)]
        for wire in wires:
            wire.send(head_text("GET", "/health"))
            self.assertEqual(wire.reply().status, 200)
        fifth = Wire(server)
        self.assertEqual(fifth.reply().status, 503)
        wires[0].close()
        server.wait_until(lambda: server.call("GET", "/health").status == 200, "a place")
        server.stop()

    def test_any_name_may_mean_this_model(self):
        server = self.scripted("--accept-any-model")
        self.assertEqual(server.chat("x", model="gpt-99")["model"], MODEL_NAME)
        server.stop()

    def test_the_request_log_has_no_keys(self):
        with tempfile.TemporaryDirectory() as folder:
            server = self.scripted("--request-log", folder, "--api-key", "secret-key")
            reply = server.call("POST", CHAT, chat_body("log me"), [("Authorization", "Bearer secret-key")])
            self.assertEqual(reply.status, 200)
            server.stop()
            logged = b"".join(pathlib.Path(folder, f).read_bytes() for f in os.listdir(folder))
            self.assertIn(b"log me", logged)
            self.assertNotIn(b"secret-key", logged)

    def test_a_full_disk_ends_the_request_log_and_nothing_else(self):
        with tempfile.TemporaryDirectory() as folder:
            server = self.scripted("--request-log", folder, file_bytes=1 << 20)
            body = chat_body("one", ignored="x" * 300_000)
            for _ in range(6):
                self.assertEqual(said(server.post(CHAT, body)), WORDS)
            server.wait_until(lambda: "the request log is off" in server.log(), "the disk to be full")
            for _ in range(2):
                self.assertEqual(said(server.post(CHAT, body)), WORDS)
            server.wait_idle()
            server.stop()
            self.assertEqual(server.log().count("the request log is off"), 1)
            self.assertLessEqual(sum(f.stat().st_size for f in pathlib.Path(folder).iterdir()), 1 << 20)
            # What was written can still be replayed.
            command = [PROGRAM, "replay", folder, "--model", MODEL, "--scripted", self.script.name]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, text=True)
            self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
            self.assertIn("1 lines are damaged", done.stderr)
            self.assertIn(" 0 different", done.stdout)

    def test_a_client_that_comes_while_others_wait(self):
        server = self.scripted()
        streams = [server.open_stream(CHAT, chat_body("slow")) for _ in range(16)]
        done = []
        threads = [threading.Thread(target=lambda i=i: done.append(said(server.post(CHAT, chat_body(f"n{i}"))))) for i in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(sorted(done), sorted(f"You said: n{i}" for i in range(16)))
        for wire in streams:
            wire.close()
        server.wait_idle()
        server.stop()


if __name__ == "__main__":
    main()
