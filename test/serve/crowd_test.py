"""An answer never depends on who else is served, nor on how: 24 requests give the same texts, ids and logprobs, digit for
digit, alone, again, streamed, in a crowd, beside clients that disconnect, and after restarts with other settings."""
import json
import random
import threading

from harness import Cases, Server, Wire, main, request_text

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
LENGTHS = (5, 6, 7, 9, 12, 15, 16, 17, 24, 31, 33, 40, 48, 63, 64, 65, 80, 100, 127, 129, 200, 300, 600, 1500)  # prompt tokens
CONTEXT = 2048


def make_requests():
    rng = random.Random(20261129)
    words = "the sea old a ship light small house of and river song green in stone was bright to winter her under".split()
    requests = []
    for i, length in enumerate(LENGTHS):
        text = " ".join(rng.choice(words) for _ in range(length * 2))
        fields = {"max_tokens": rng.choice((6, 8, 10, 12)), "temperature": 0 if i % 3 == 0 else rng.choice((0.6, 1.0, 1.5)),
                  "seed": rng.randrange(2**53)}
        if i % 4 == 1:
            fields["top_p"] = 0.9
        if i % 4 == 2:
            fields.update(top_k=40, min_p=0.02)
        if i % 5 == 3:
            fields.update(presence_penalty=0.5, repetition_penalty=1.1)
        if i % 8 == 7:
            fields["n"] = 2
        if i % 2 and length > 40:  # a template's own tokens are 20 to 40
            text = " ".join(text.split()[:length - 38])
            requests.append((CHAT, {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}],
                                    "logprobs": True, "top_logprobs": i % 6, **fields}))
        else:
            requests.append((COMPLETE, {"prompt": text, "length": length, "logprobs": i % 6, "echo": i % 7 == 0, **fields}))
    return requests


def parse(data):
    """Numbers with a fraction stay as they were written."""
    return json.loads(data, parse_float=lambda s: "=" + s)


def facts_of_body(path, body):
    d = parse(body)
    choices = []
    for c in d["choices"]:
        text = c["message"]["content"] if path == CHAT else c["text"]
        choices.append([text, c["logprobs"]["content"] if path == CHAT else c["logprobs"], c["finish_reason"]])
    return {"choices": choices, "usage": {k: v for k, v in d["usage"].items() if k.endswith("_tokens")}, "receipt": d["invar"]}


def facts_of_frames(path, frames):
    choices, last = {}, None
    for frame in frames:
        if frame == b"[DONE]":
            break
        last = parse(frame)
        for c in last["choices"]:
            mine = choices.setdefault(c["index"], ["", [] if path == CHAT else {}, None])
            if path == CHAT:
                mine[0] += c["delta"].get("content") or ""
                mine[1] += (c["logprobs"] or {}).get("content", [])
            else:
                mine[0] += c["text"]
                for key, values in (c["logprobs"] or {}).items():
                    mine[1].setdefault(key, []).extend(values)
            mine[2] = mine[2] or c["finish_reason"]
    else:
        raise AssertionError(f"a stream ended without [DONE]: {last}")
    return {"choices": [choices[i] for i in sorted(choices)], "usage": {k: v for k, v in last["usage"].items() if k.endswith("_tokens")},
            "receipt": last["invar"]}


class Crowd(Cases):
    reference = None
    requests = make_requests()

    @classmethod
    def setUpClass(cls):
        with Server("--max-wait", 0, "--ctx", CONTEXT) as server:
            for path, body in cls.requests:  # completions get exactly as many tokens as LENGTHS says
                if path == COMPLETE:
                    ids = server.answer("/tokenize", {"content": body["prompt"]})["tokens"]
                    length = body.pop("length")
                    if length % 2:
                        body["prompt"] = ids[:length]
                    else:
                        body["prompt"] = server.answer("/detokenize", {"tokens": ids[:length]})["content"]
            cls.reference = [cls.ask(server, i, False) for i in range(len(cls.requests))]
            server.stop()

    @classmethod
    def ask(cls, server, i, stream):
        path, body = cls.requests[i]
        if not stream:
            reply = server.post(path, body)
            assert reply.status == 200, reply.body[:1000]
            return facts_of_body(path, reply.body)
        with server.open_stream(path, {**body, "stream_options": {"include_usage": True}}) as wire:
            return facts_of_frames(path, wire.frames())

    def check(self, i, facts, how):
        if facts != self.reference[i]:
            for key, value in self.reference[i].items():
                self.assertEqual(facts[key], value, f"request {i} ({LENGTHS[i]} prompt tokens), {how}")

    def crowd(self, server, seed, how, order=None):
        """All at once in random order, every other one streamed."""
        rng = random.Random(seed)
        order = list(range(len(self.requests))) if order is None else list(order)
        rng.shuffle(order)
        facts, failures = {}, []

        def work(i, stream):
            try:
                facts[i] = self.ask(server, i, stream)
            except Exception as e:  # shown by the thread that joins
                failures.append(f"request {i}: {e!r}")

        threads = [threading.Thread(target=work, args=(i, rng.random() < 0.5)) for i in order]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(failures, [], how)
        for i in order:
            self.check(i, facts[i], how)

    def test_again_streamed_and_in_crowds(self):
        with Server("--max-wait", 0, "--ctx", CONTEXT) as server:
            for stream in (False, True):
                for i in range(len(self.requests)):
                    self.check(i, self.ask(server, i, stream), "streamed" if stream else "again alone")
            for seed in range(5):
                self.crowd(server, seed, f"in crowd {seed}")
            self.disconnecting_neighbours(server)
            server.wait_idle()
            server.stop()

    def disconnecting_neighbours(self, server):
        rng, ended = random.Random(99), threading.Event()

        def neighbour(seed):
            mine = random.Random(seed)
            while not ended.is_set():
                body = {"prompt": [mine.randrange(1000, 20000) for _ in range(mine.choice((3, 70, 300)))], "max_tokens": 200,
                        "temperature": 1, "logprobs": 5, "ignore_eos": True, "stream": mine.random() < 0.8, "n": mine.choice((1, 1, 3))}
                wire = Wire(server)
                wire.send(request_text("POST", COMPLETE, body))
                try:
                    wire.socket.settimeout(mine.choice((0.05, 0.3, 1)))
                    for _ in range(mine.randrange(1, 12)):
                        if not wire.socket.recv(4096):
                            break
                except OSError:
                    pass
                if mine.random() < 0.5:
                    wire.reset()
                else:
                    wire.close()

        threads = [threading.Thread(target=neighbour, args=(rng.random(),)) for _ in range(6)]
        for t in threads:
            t.start()
        try:
            self.crowd(server, 6, "beside neighbours that disconnect")
        finally:
            ended.set()
            for t in threads:
                t.join()

    def test_after_restarts_with_other_settings(self):
        # Every value meets some other one; the slow sets take the shorter requests.
        short = [i for i, n in enumerate(LENGTHS) if n <= 200]
        for flags, order in (("--threads 1 --max-batch 3", None), ("--threads 3 --prefill-chunk 13", None),
                             ("--isa scalar --max-batch 1", short), ("--isa scalar --threads 2 --prefill-chunk 64 --max-batch 5", short),
                             ("--isa scalar-portable --threads 2 --prefill-chunk 1", short[:9])):
            with self.subTest(flags=flags), Server("--max-wait", 0, "--ctx", CONTEXT, *flags.split()) as server:
                self.crowd(server, len(flags), flags, order)
                server.wait_idle()
                server.stop()

    def test_little_memory_for_the_cache(self):
        # 2,900 tokens in 64 MiB: the four that come first do not fit at once when they have grown, and whoever comes after
        # them gives its pages up and is computed again.
        with Server("--max-wait", 0, "--ctx", CONTEXT, "--memory", "64MiB") as server:
            old = [server.open_stream(COMPLETE, {"prompt": [1000 + i] * 5, "max_tokens": 800, "ignore_eos": True, "seed": i})
                   for i in range(4)]
            self.crowd(server, 17, "with 64 MiB for keys and values")
            for wire in old:
                self.assertEqual(list(wire.frames())[-1], b"[DONE]")
                wire.close()
            self.assertGreater(server.metrics()["vllm:num_preemptions_total"], 0)
            server.wait_idle()
            server.stop()


if __name__ == "__main__":
    main()
