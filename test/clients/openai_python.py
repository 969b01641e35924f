"""The official Python client, unchanged, against `invar serve`. Run by run.sh."""
import asyncio
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "serve"))
import openai  # noqa: E402
from harness import MODEL_NAME, Cases, Server, main  # noqa: E402

KEY = "client-tests"
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "script.json")
QUESTION = [{"role": "user", "content": "The capital of France is"}]


class WithClient(Cases):
    flags = ()

    @classmethod
    def start(cls):
        server = Server("--api-key", KEY, "--ctx", "2048", *cls.flags)
        cls.url = f"http://127.0.0.1:{server.port}/v1"
        cls.client = openai.OpenAI(base_url=cls.url, api_key=KEY, max_retries=0, timeout=240)
        plain = server.call
        server.call = lambda m, p, b=None, f=(): plain(m, p, b, [*f, ("Authorization", "Bearer " + KEY)])
        return server

    def chat(self, messages=None, **fields):
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return self.client.chat.completions.create(**{"model": MODEL_NAME, "messages": messages or QUESTION, "temperature": 0, "max_tokens": 12,
                                                      **fields})

    def complete(self, prompt="The capital of France is", **fields):
        return self.client.completions.create(**{"model": MODEL_NAME, "prompt": prompt, "temperature": 0, "max_tokens": 8, **fields})


class Chat(WithClient):
    def test_answer(self):
        d = self.chat(max_tokens=48)
        self.assertIn("Paris", d.choices[0].message.content)
        self.assertEqual((d.object, d.model, d.choices[0].message.role), ("chat.completion", MODEL_NAME, "assistant"))
        self.assertIn(d.choices[0].finish_reason, ("stop", "length"))
        self.assertIsNone(d.choices[0].message.refusal)

    def test_usage(self):
        usage = self.chat(max_tokens=5, extra_body={"ignore_eos": True}).usage
        self.assertEqual((usage.completion_tokens, usage.total_tokens), (5, usage.prompt_tokens + 5))
        self.assertGreaterEqual(usage.prompt_tokens_details.cached_tokens, 0)

    def test_stream(self):
        chunks = list(self.chat(stream=True))
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks), self.chat().choices[0].message.content)
        self.assertEqual([c.choices[0].delta.role for c in chunks], ["assistant"] + [None] * (len(chunks) - 1))
        self.assertEqual({c.id for c in chunks}, {chunks[0].id})
        self.assertTrue(chunks[-1].choices[0].finish_reason)

    def test_stream_with_usage(self):
        *chunks, last = self.chat(stream=True, stream_options={"include_usage": True})
        self.assertEqual((last.choices, last.usage), ([], self.chat().usage))
        self.assertTrue(all(c.usage is None for c in chunks))

    def test_stream_helper(self):
        # It takes an answer that was cut for its length for an error.
        fields = {"messages": [{"role": "user", "content": "Answer with one word: what is the capital of France?"}], "max_tokens": 200}
        with self.client.chat.completions.stream(model=MODEL_NAME, temperature=0, **fields) as stream:
            text = "".join(e.delta for e in stream if e.type == "content.delta")
            final = stream.get_final_completion()
        self.assertEqual(text, self.chat(**fields).choices[0].message.content)
        self.assertEqual(final.choices[0].message.content, text)

    def test_logprobs(self):
        d = self.chat(logprobs=True, top_logprobs=4)
        entries = d.choices[0].logprobs.content
        self.assertEqual(len(entries), d.usage.completion_tokens)
        self.assertEqual(b"".join(bytes(e.bytes) for e in entries).decode(), d.choices[0].message.content)
        self.assertTrue(all(len(e.top_logprobs) == 4 and e.top_logprobs[0].logprob == e.logprob for e in entries))
        streamed = [e for c in self.chat(logprobs=True, top_logprobs=4, stream=True) if c.choices[0].logprobs for e in c.choices[0].logprobs.content]
        self.assertEqual(streamed, entries)

    def test_n(self):
        d = self.chat("Name an animal.", n=3, temperature=1, seed=5)
        self.assertEqual([c.index for c in d.choices], [0, 1, 2])
        self.assertEqual(d.choices[0].message.content, self.chat("Name an animal.", temperature=1, seed=5).choices[0].message.content)
        texts = ["", "", ""]
        for chunk in self.chat("Name an animal.", n=3, temperature=1, seed=5, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
        self.assertEqual(texts, [c.message.content for c in d.choices])

    def test_stop(self):
        free = self.chat().choices[0].message.content
        d = self.chat(stop=[free[6:12], "unseen"])
        self.assertEqual((d.choices[0].message.content, d.choices[0].finish_reason), (free.split(free[6:12])[0], "stop"))

    def test_seed(self):
        first, second = (self.chat(temperature=1, seed=42, max_tokens=24) for _ in range(2))
        self.assertEqual(first.choices, second.choices)
        self.assertEqual(first.system_fingerprint, second.system_fingerprint)
        self.assertEqual(first.model_extra["invar"], second.model_extra["invar"])
        self.assertNotEqual(first.choices, self.chat(temperature=1, seed=43, max_tokens=24).choices)

    def test_random_seed_is_told(self):
        first = self.chat(temperature=1, max_tokens=24)
        seed = first.model_extra["invar"]["seed"]
        self.assertEqual(self.chat(temperature=1, max_tokens=24, seed=seed).choices, first.choices)

    def test_logit_bias(self):
        d = self.chat(logit_bias={"7042": 100}, max_tokens=3, logprobs=True)
        self.assertEqual([e.model_extra["id"] for e in d.choices[0].logprobs.content], [7042] * 3)

    def test_penalties_and_the_rest_are_taken(self):
        self.chat(presence_penalty=1, frequency_penalty=-1, top_p=0.5, max_completion_tokens=4, user="me", metadata={"a": "b"}, store=False,
                  parallel_tool_calls=True, response_format={"type": "text"}, service_tier="auto", reasoning_effort="low",
                  extra_body={"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1})

    def test_developer_is_system(self):
        def answer(role):
            return self.chat([{"role": role, "content": "You speak like a pirate."}, *QUESTION]).choices[0].message.content
        self.assertEqual(answer("developer"), answer("system"))

    def test_parts(self):
        parts = [{"type": "text", "text": "The capital of France"}, {"type": "text", "text": "is"}]
        whole = self.chat("The capital of France\nis")
        self.assertEqual(self.chat([{"role": "user", "content": parts}]).choices[0].message, whole.choices[0].message)

    def test_prefill(self):
        d = self.chat([*QUESTION, {"role": "assistant", "content": "The capital of France is the city of"}])
        self.assertTrue(d.choices[0].message.content.startswith(" Paris"))

    def test_tool_history(self):
        tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]
        call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
        d = self.chat([*QUESTION, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c1", "content": "sunny"}], tools=tools)
        self.assertGreater(d.usage.completion_tokens, 0)

    def test_bad_requests(self):
        for fields, param in (({"temperature": 3}, "temperature"), ({"max_tokens": 0}, "max_tokens"), ({"n": 100}, "n"), ({"top_logprobs": 3}, "top_logprobs"),
                              ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role")):
            with self.assertRaises(openai.BadRequestError) as e:
                self.client.chat.completions.create(**{"model": MODEL_NAME, "messages": QUESTION, **fields})
            self.assertEqual((e.exception.status_code, e.exception.param, e.exception.type), (400, param, "invalid_request_error"))

    def test_context_length(self):
        with self.assertRaises(openai.BadRequestError) as e:
            self.chat("word " * 3000)
        self.assertEqual(e.exception.code, "context_length_exceeded")
        self.assertIn("2048", e.exception.message)

    def test_unknown_model(self):
        with self.assertRaises(openai.NotFoundError) as e:
            self.chat(model="gpt-9")
        self.assertEqual((e.exception.code, e.exception.param), ("model_not_found", "model"))

    def test_images_are_refused(self):
        part = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
        with self.assertRaises(openai.BadRequestError) as e:
            self.chat([{"role": "user", "content": [part]}])
        self.assertEqual(e.exception.code, "unsupported_content")


class Completions(WithClient):
    def test_text(self):
        d = self.complete()
        self.assertTrue(d.choices[0].text.startswith(" Paris"))
        self.assertEqual(d.object, "text_completion")

    def test_prompts_of_all_forms(self):
        texts = ["The capital of France is", "One, two, three,"]
        single = [self.complete(t).choices[0].text for t in texts]
        self.assertEqual([c.text for c in self.complete(texts).choices], single)
        ids = [self.server.answer("/tokenize", {"content": t})["tokens"] for t in texts]
        self.assertEqual(self.complete(ids[0]).choices[0].text, single[0])
        self.assertEqual([c.text for c in self.complete(ids).choices], single)

    def test_stream(self):
        *chunks, last = self.complete(stream=True, stream_options={"include_usage": True})
        self.assertEqual("".join(c.choices[0].text for c in chunks), self.complete().choices[0].text)
        self.assertEqual(last.usage.completion_tokens, 8)

    def test_echo_scores(self):
        d = self.complete(echo=True, logprobs=2, extra_body={"ignore_eos": True})
        lists = d.choices[0].logprobs
        self.assertEqual("".join(lists.tokens), d.choices[0].text)
        ids = self.server.answer("/tokenize", {"content": d.choices[0].text})["tokens"]
        scored = self.complete(ids, echo=True, logprobs=2, max_tokens=0)
        self.assertEqual(scored.choices[0].logprobs, lists)
        self.assertIsNone(lists.token_logprobs[0])

    def test_best_of(self):
        d = self.complete("A cat", temperature=1, seed=1, n=2, best_of=4)
        self.assertEqual(len(d.choices), 2)
        self.assertEqual(len({c.text for c in self.complete("A cat", temperature=1, seed=1, n=4).choices} | {c.text for c in d.choices}), 4)

    def test_suffix_is_refused(self):
        with self.assertRaises(openai.BadRequestError) as e:
            self.complete(suffix="x")
        self.assertEqual(e.exception.param, "suffix")


class Others(WithClient):
    flags = ("--served-model-name", f"{MODEL_NAME},gpt-4o-mini")

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], [MODEL_NAME, "gpt-4o-mini"])
        self.assertEqual(self.client.models.retrieve("gpt-4o-mini").object, "model")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("other")
        self.assertEqual(self.chat(model="gpt-4o-mini").model, MODEL_NAME)

    def test_keys(self):
        wrong = openai.OpenAI(base_url=self.url, api_key="wrong", max_retries=0)
        for call in (lambda: wrong.models.list(), lambda: wrong.chat.completions.create(model="x", messages=QUESTION)):
            with self.assertRaises(openai.AuthenticationError) as e:
                call()
            self.assertEqual((e.exception.status_code, e.exception.type), (401, "authentication_error"))

    def test_unknown_paths(self):
        with self.assertRaises(openai.NotFoundError):
            self.client.embeddings.create(model=MODEL_NAME, input="x")
        with self.assertRaises(openai.NotFoundError):
            self.client.files.list()

    def test_raw_answers(self):
        raw = self.client.chat.completions.with_raw_response.create(model=MODEL_NAME, messages=QUESTION, max_tokens=1)
        self.assertEqual(raw.headers["content-type"], "application/json")
        self.assertTrue(raw.headers["x-request-id"])
        self.assertEqual(raw.parse()._request_id, raw.headers["x-request-id"])
        with self.client.chat.completions.with_streaming_response.create(model=MODEL_NAME, messages=QUESTION, max_tokens=2, stream=True) as raw:
            self.assertTrue(raw.headers["content-type"].startswith("text/event-stream"))
            lines = [line for line in raw.iter_lines() if line]
        self.assertEqual(lines[-1], "data: [DONE]")

    def test_async_clients_at_once(self):
        async def one(i):
            async with openai.AsyncOpenAI(base_url=self.url, api_key=KEY, max_retries=0, timeout=240) as client:
                text = ""
                async for chunk in await client.chat.completions.create(model=MODEL_NAME, messages=QUESTION, seed=i % 4, temperature=1, max_tokens=12, stream=True):
                    text += chunk.choices[0].delta.content or ""
                return text

        async def everyone():
            return await asyncio.gather(*(one(i) for i in range(16)))

        texts = asyncio.run(everyone())
        self.assertEqual(texts[:4] * 4, texts)
        self.assertEqual(texts[1], self.chat(seed=1, temperature=1).choices[0].message.content)

    def test_one_client_shared_by_threads(self):
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(8) as pool:
            texts = list(pool.map(lambda i: self.chat(seed=i % 2, temperature=1).choices[0].message.content, range(16)))
        self.assertEqual(texts[:2] * 8, texts)


class Scripted(WithClient):
    flags = ("--scripted", SCRIPT)

    def test_errors_are_the_clients_classes(self):
        for text, error, status in (("busy", openai.RateLimitError, 429), ("down", openai.InternalServerError, 503), ("broken", openai.InternalServerError, 500),
                                    ("forbidden", openai.PermissionDeniedError, 403), ("conflict", openai.ConflictError, 409),
                                    ("unprocessable", openai.UnprocessableEntityError, 422)):
            with self.assertRaises(error) as e:
                self.chat(text)
            self.assertEqual(e.exception.status_code, status)
            self.assertTrue(e.exception.message)

    def test_retries_obey_retry_after(self):
        start = time.monotonic()
        with self.assertRaises(openai.RateLimitError):
            self.client.with_options(max_retries=1).chat.completions.create(model=MODEL_NAME, messages=[{"role": "user", "content": "busy"}])
        self.assertGreater(time.monotonic() - start, 0.9)

    def test_an_error_in_mid_stream(self):
        text = ""
        with self.assertRaises(openai.APIError) as e:
            for chunk in self.chat("fault", stream=True):
                text += chunk.choices[0].delta.content or ""
        self.assertEqual((text, e.exception.message), ("ab", "the disk is gone"))

    def test_a_broken_connection(self):
        text = ""
        with self.assertRaises(Exception):
            for chunk in self.chat("crash", stream=True):
                text += chunk.choices[0].delta.content or ""
        self.assertEqual(text, "ab")

    def test_a_timeout_frees_the_request(self):
        with self.assertRaises(openai.APITimeoutError):
            self.client.with_options(timeout=0.5).chat.completions.create(model=MODEL_NAME, messages=[{"role": "user", "content": "late"}])
        self.server.wait_idle(20)

    def test_an_aborted_stream_frees_the_request(self):
        stream = self.chat("slow", stream=True, max_tokens=None)
        next(iter(stream))
        self.assertGreaterEqual(self.server.running(), 1)
        stream.close()
        self.server.wait_idle(20)

    def test_characters_are_whole(self):
        parts = [c.choices[0].delta.content or "" for c in self.chat("emoji", stream=True, max_tokens=None)]
        self.assertEqual("".join(parts), "caf\u00e9 \U0001f9d1\u200d\U0001f680 \u65e5\u672c\u8a9e")
        self.assertFalse(any("\ufffd" in p for p in parts))


if __name__ == "__main__":
    main()
