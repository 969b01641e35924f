// The official client for Node, unchanged, against `invar serve`. Run by run.sh: INVAR, INVAR_MODEL, and the folder with
// the installed client as argument. Ends with "N passed, N failed".
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const require = createRequire(join(process.argv[2], 'x.js'));
const module = await import(pathToFileURL(require.resolve('openai')).href);
const OpenAI = module.OpenAI ?? module.default;
const here = dirname(fileURLToPath(import.meta.url));
const MODEL = 'SmolLM2-135M-Instruct.Q4_1', KEY = 'client-tests';
const QUESTION = [{ role: 'user', content: 'The capital of France is' }];

const servers = [];
process.on('exit', () => servers.forEach((s) => s.kill('SIGKILL')));

async function serve(...flags) {
  const child = spawn(process.env.INVAR, ['serve', '--port', '0', '--model', process.env.INVAR_MODEL, '--api-key', KEY, '--quiet', ...flags],
    { stdio: ['ignore', 'ignore', 'pipe'] });
  servers.push(child);
  let log = '';
  const url = await new Promise((resolve, reject) => {
    child.stderr.on('data', (data) => {
      log += data;
      const match = /served at (http:\S+\/v1)/.exec(log);
      if (match) resolve(match[1]);
    });
    child.on('exit', (code) => reject(new Error(`invar serve ended with ${code}: ${log}`)));
  });
  const client = new OpenAI({ baseURL: url, apiKey: KEY, maxRetries: 0, timeout: 240_000 });
  const headers = { Authorization: `Bearer ${KEY}` };
  const running = async () => {
    const text = await (await fetch(url.replace('/v1', '/metrics'), { headers })).text();
    return Number(/^invar_requests_live\S* (\d+)/m.exec(text)[1]);
  };
  const idle = async () => {
    const end = Date.now() + 20_000;
    while (await running()) {
      if (Date.now() > end) throw new Error('a request still runs');
      await new Promise((r) => setTimeout(r, 50));
    }
  };
  const post = async (path, body) => (await fetch(url.replace('/v1', path), { method: 'POST', headers, body: JSON.stringify(body) })).json();
  const stop = async () => {
    await idle();
    const code = await new Promise((resolve) => {
      child.removeAllListeners('exit');
      child.on('exit', resolve);
      child.kill('SIGTERM');
    });
    assert.equal(code, 0, log);
  };
  return { client, url, running, idle, post, stop };
}

const model = await serve('--ctx', '2048');
const scripted = await serve('--scripted', join(here, 'script.json'));

const chat = (fields = {}, options) =>
  model.client.chat.completions.create({ model: MODEL, messages: QUESTION, temperature: 0, max_tokens: 12, ...fields }, options);
const complete = (fields = {}) =>
  model.client.completions.create({ model: MODEL, prompt: 'The capital of France is', temperature: 0, max_tokens: 8, ...fields });
const say = (content, fields = {}, options) =>
  scripted.client.chat.completions.create({ model: MODEL, messages: [{ role: 'user', content }], ...fields }, options);

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}
const textOf = (chunks, index = 0) =>
  chunks.flatMap((c) => c.choices).filter((c) => c.index === index).map((c) => c.delta?.content ?? c.text ?? '').join('');

async function fails(type, call, facts = {}) {
  try {
    await call();
  } catch (e) {
    assert.ok(e instanceof type, `${e.constructor.name} instead of ${type.name}: ${e.message}`);
    for (const [key, value] of Object.entries(facts)) assert.equal(e[key], value, key);
    return e;
  }
  assert.fail(`no ${type.name}`);
}

const steps = {
  'chat answers': async () => {
    const d = await chat({ max_tokens: 48 });
    assert.match(d.choices[0].message.content, /Paris/);
    assert.equal(d.object, 'chat.completion');
    assert.equal(d.choices[0].message.refusal, null);
  },
  'usage adds up': async () => {
    const { usage } = await chat({ max_tokens: 5, ignore_eos: true });
    assert.equal(usage.completion_tokens, 5);
    assert.equal(usage.total_tokens, usage.prompt_tokens + 5);
  },
  'a stream is the answer': async () => {
    const chunks = await collect(await chat({ stream: true }));
    assert.equal(textOf(chunks), (await chat()).choices[0].message.content);
    assert.equal(chunks[0].choices[0].delta.role, 'assistant');
    assert.equal(new Set(chunks.map((c) => c.id)).size, 1);
    assert.ok(chunks.at(-1).choices[0].finish_reason);
    assert.ok(chunks.slice(0, -1).every((c) => c.choices[0].finish_reason === null));
  },
  'a stream tells its usage when asked': async () => {
    const chunks = await collect(await chat({ stream: true, stream_options: { include_usage: true } }));
    assert.deepEqual(chunks.at(-1).choices, []);
    assert.deepEqual(chunks.at(-1).usage, (await chat()).usage);
  },
  'the stream helper collects': async () => {
    const stream = model.client.chat.completions.stream({ model: MODEL, messages: QUESTION, temperature: 0, max_tokens: 12 });
    let text = '';
    stream.on('content', (delta) => (text += delta));
    const final = await stream.finalChatCompletion();
    assert.equal(final.choices[0].message.content, text);
    assert.equal(text, (await chat()).choices[0].message.content);
  },
  'logprobs': async () => {
    const d = await chat({ logprobs: true, top_logprobs: 3 });
    const entries = d.choices[0].logprobs.content;
    assert.equal(entries.length, d.usage.completion_tokens);
    assert.equal(Buffer.from(entries.flatMap((e) => e.bytes)).toString(), d.choices[0].message.content);
    assert.ok(entries.every((e) => e.top_logprobs.length === 3));
    const chunks = await collect(await chat({ logprobs: true, top_logprobs: 3, stream: true }));
    assert.deepEqual(chunks.flatMap((c) => c.choices[0].logprobs?.content ?? []), entries);
  },
  'n choices': async () => {
    const d = await chat({ n: 3, temperature: 1, seed: 5 });
    assert.deepEqual(d.choices.map((c) => c.index), [0, 1, 2]);
    const chunks = await collect(await chat({ n: 3, temperature: 1, seed: 5, stream: true }));
    for (const c of d.choices) assert.equal(textOf(chunks, c.index), c.message.content);
  },
  'stop strings': async () => {
    const free = (await chat()).choices[0].message.content, stop = free.slice(6, 12);
    const d = await chat({ stop: [stop] });
    assert.equal(d.choices[0].message.content, free.split(stop)[0]);
    assert.equal(d.choices[0].finish_reason, 'stop');
    assert.equal(textOf(await collect(await chat({ stop, stream: true }))), free.split(stop)[0]);
  },
  'a seed decides': async () => {
    const one = await chat({ temperature: 1, seed: 42 }), two = await chat({ temperature: 1, seed: 42 });
    assert.deepEqual(one.choices, two.choices);
    assert.deepEqual(one.invar, two.invar);
    assert.equal(one.system_fingerprint, two.system_fingerprint);
  },
  'a random seed is exact as a JavaScript number': async () => {
    for (let i = 0; i < 5; i++) {
      const one = await chat({ temperature: 1, max_tokens: 16 });
      assert.ok(Number.isSafeInteger(one.invar.seed));
      assert.deepEqual((await chat({ temperature: 1, max_tokens: 16, seed: one.invar.seed })).choices, one.choices);
    }
  },
  'logit_bias forces a token': async () => {
    const d = await chat({ logit_bias: { 7042: 100 }, max_tokens: 3, logprobs: true });
    assert.deepEqual(d.choices[0].logprobs.content.map((e) => e.id), [7042, 7042, 7042]);
  },
  'developer is system, parts are text, a prefill goes on': async () => {
    const as = async (role) => (await chat({ messages: [{ role, content: 'Be a pirate.' }, ...QUESTION] })).choices[0].message.content;
    assert.equal(await as('developer'), await as('system'));
    const parts = [{ type: 'text', text: 'The capital of France is' }];
    assert.equal((await chat({ messages: [{ role: 'user', content: parts }] })).choices[0].message.content, (await chat()).choices[0].message.content);
    const d = await chat({ messages: [...QUESTION, { role: 'assistant', content: 'The capital of France is the city of' }] });
    assert.match(d.choices[0].message.content, /^ Paris/);
  },
  'bad requests are named': async () => {
    await fails(OpenAI.BadRequestError, () => chat({ temperature: 3 }), { status: 400, param: 'temperature', type: 'invalid_request_error' });
    await fails(OpenAI.BadRequestError, () => chat({ messages: [] }), { param: 'messages' });
    await fails(OpenAI.BadRequestError, () => chat({ messages: [{ role: 'user', content: 'word '.repeat(3000) }] }), { code: 'context_length_exceeded' });
  },
  'completions': async () => {
    const d = await complete();
    assert.match(d.choices[0].text, /^ Paris/);
    assert.equal(textOf(await collect(await complete({ stream: true }))), d.choices[0].text);
  },
  'prompts of all forms': async () => {
    const texts = ['The capital of France is', 'One, two, three,'];
    const ids = [];
    for (const content of texts) ids.push((await model.post('/tokenize', { content })).tokens);
    const want = [(await complete()).choices[0].text, (await complete({ prompt: texts[1] })).choices[0].text];
    for (const prompt of [texts, ids]) assert.deepEqual((await complete({ prompt })).choices.map((c) => c.text), want);
    assert.equal((await complete({ prompt: ids[0] })).choices[0].text, want[0]);
  },
  'echo has the scores of generation': async () => {
    const d = (await complete({ echo: true, logprobs: 2, ignore_eos: true })).choices[0];
    assert.equal(d.logprobs.tokens.join(''), d.text);
    const prompt = (await model.post('/tokenize', { content: d.text })).tokens;
    assert.deepEqual((await complete({ prompt, echo: true, logprobs: 2, max_tokens: 0 })).choices[0].logprobs, d.logprobs);
  },
  'models': async () => {
    const list = [];
    for await (const m of model.client.models.list()) list.push(m.id);
    assert.deepEqual(list, [MODEL]);
    assert.equal((await model.client.models.retrieve(MODEL)).id, MODEL);
    await fails(OpenAI.NotFoundError, () => model.client.models.retrieve('other'), { status: 404 });
    await fails(OpenAI.NotFoundError, () => chat({ model: 'gpt-9' }), { code: 'model_not_found' });
  },
  'keys': async () => {
    const wrong = new OpenAI({ baseURL: model.url, apiKey: 'wrong', maxRetries: 0 });
    await fails(OpenAI.AuthenticationError, () => wrong.models.list(), { status: 401 });
  },
  'raw answers': async () => {
    const { data, response } = await chat({ max_tokens: 1 }).withResponse();
    assert.equal(response.headers.get('content-type'), 'application/json');
    assert.equal(data._request_id, response.headers.get('x-request-id'));
  },
  'errors of the server': async () => {
    await fails(OpenAI.RateLimitError, () => say('busy'), { status: 429, code: 'busy' });
    await fails(OpenAI.InternalServerError, () => say('down'), { status: 503 });
    await fails(OpenAI.PermissionDeniedError, () => say('forbidden'), { status: 403 });
  },
  'an error in mid-stream': async () => {
    let text = '';
    const e = await fails(OpenAI.APIError, async () => {
      for await (const chunk of await say('fault', { stream: true })) text += chunk.choices[0].delta.content ?? '';
    });
    assert.equal(text, 'ab');
    assert.match(e.message, /the disk is gone/);
  },
  'a broken connection': async () => {
    let text = '';
    await assert.rejects(async () => {
      for await (const chunk of await say('crash', { stream: true })) text += chunk.choices[0].delta.content ?? '';
    });
    assert.equal(text, 'ab');
  },
  'an aborted stream is freed': async () => {
    const stream = await say('slow', { stream: true });
    for await (const _ of stream) break;
    await scripted.idle();
    const other = await say('slow', { stream: true });
    await other[Symbol.asyncIterator]().next();
    other.controller.abort();
    await scripted.idle();
  },
  'a request that timed out is freed': async () => {
    await fails(OpenAI.APIConnectionTimeoutError, () => say('late', {}, { timeout: 500 }));
    await scripted.idle();
  },
  'many at once': async () => {
    const texts = await Promise.all(Array.from({ length: 16 }, async (_, i) => textOf(await collect(await chat({ seed: i % 4, temperature: 1, stream: true })))));
    texts.forEach((t, i) => assert.equal(t, texts[i % 4]));
  },
  'characters are whole': async () => {
    const chunks = await collect(await say('emoji', { stream: true }));
    assert.equal(textOf(chunks), 'café 🧑‍🚀 日本語');
    assert.ok(chunks.every((c) => !(c.choices[0].delta.content ?? '').includes('\ufffd')));
  },
  'both servers end well': async () => {
    await model.stop();
    await scripted.stop();
  },
};

let passed = 0, failed = 0;
for (const [name, step] of Object.entries(steps)) {
  try {
    await step();
    passed++;
    console.log(`${name} ... ok`);
  } catch (e) {
    failed++;
    console.log(`${name} ... FAILED\n${e.stack}`);
  }
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
