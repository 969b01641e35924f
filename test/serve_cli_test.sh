#!/usr/bin/env bash
# End-to-end tests of the verbs that talk to a model through the HTTP API: chat, verify, replay; with a running server and
# without one.
# usage: test/serve_cli_test.sh INVAR MODEL DATA      (as test/cli_test.sh)
set -uo pipefail

invar=$(realpath "$1") model=$2 data=$3
for f in "$invar" "$model" "$data/oracles/gguf/lossless/llama-untied.gguf"; do
  [ -e "$f" ] || { echo "serve_cli_test: $f is missing; the start script fetches the default model: ./invar test"; exit 1; }
done
model=$(realpath "$model") tiny=$(realpath "$data")/oracles/gguf/lossless/llama-untied.gguf

work=$(mktemp -d)
servers=()
cleanup() {
  for pid in "${servers[@]}"; do kill -KILL "$pid" 2>/dev/null; done
  wait 2>/dev/null
  rm -rf "$work"
}
trap cleanup EXIT
# shellcheck source=check.sh
source "$(dirname "${BASH_SOURCE[0]}")/check.sh"

refused() {
  local name=$1 code=$2 text=$3
  shift 3
  run "$name" "$code" "$@" </dev/null
  err_has "$name" "$text"
  check "$name: not one message" [ "$(wc -l <"$work/err")" = 1 ]
}
# wait_for FILE TEXT [PID]: until the text is in the file; false after two minutes, or once the process is gone.
wait_for() {
  local i
  for ((i = 0; i < 2400; i++)); do
    grep -qF -- "$2" "$1" 2>/dev/null && return 0
    [ -z "${3:-}" ] || kill -0 "$3" 2>/dev/null || return 1
    sleep 0.05
  done
  return 1
}

# start_server NAME FLAGS...: sets `pid` and `port`.
start_server() {
  local name=$1
  shift
  "$invar" serve --port 0 --quiet "$@" 2>"$work/$name.log" &
  pid=$!
  servers+=("$pid")
  if ! wait_for "$work/$name.log" "is served at" $pid; then
    cat "$work/$name.log"
    echo "serve_cli_test: the server $name does not start"
    exit 1
  fi
  port=$(sed -n 's|.*is served at http://127.0.0.1:\([0-9]*\)/v1.*|\1|p' "$work/$name.log")
}

# post PATH BODY FILE: the body of the answer, by HTTP/1.0, which knows no chunks.
post() {
  exec 3<>"/dev/tcp/127.0.0.1/$port" || return 1
  printf 'POST %s HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s' "$1" "$(LC_ALL=C; printf %s "${#2}")" "$2" >&3
  sed -u '1,/^\r$/d' <&3 >"$3"
  exec 3<&- 3>&-
}

# ---- chat, with a server that says what a file tells it
cat >"$work/script.json" <<'EOF'
{"rules": [
  {"when": {"equals": "full"}, "error": {"status": 400, "message": "too many tokens", "code": "context_length_exceeded"}},
  {"when": {"equals": "long"}, "text": "one two three four five six seven eight nine ten one two three four five six seven eight nine ten", "group_ms": 1000},
  {"when": {"equals": "escape"}, "groups": ["a\u001b[2Jb", "\nc\td"]},
  {"when": {"equals": "cut"}, "text": "never said to its end", "cut": {"after_groups": 2}},
  {"when": {"equals": "fail"}, "text": "never said to its end", "fail": {"status": 500, "message": "on purpose", "after_groups": 2}},
  {"when": {"equals": "brief"}, "text": "short", "finish": "length"},
  {"when": {"turn": 2}, "text": "second: {{last}}"},
  {"when": {"turn": 3}, "text": "third: {{last}}"},
  {"text": "first: {{last}}"}
]}
EOF
start_server scripted --scripted "$work/script.json" --request-log "$work/scripted-log" --api-key secret
remote=(--server "http://127.0.0.1:$port/v1" --api-key secret)
scripted_pid=$pid

check "the banner lacks the number of keys" grep -q ", context [0-9]*, 1 key)" "$work/scripted.log"
check "the banner has an example, but no terminal" bash -c '! grep -q curl "$1"' _ "$work/scripted.log"

for form in server local; do
  if [ $form = server ]; then how=("${remote[@]}"); else how=(--scripted "$work/script.json"); fi
  run "chat, $form" 0 "$invar" chat "${how[@]}" < <(printf 'Gr\303\274\303\237e\n\nb\n/clear\nc\r\n//d\n/exit\nnever')
  out_is "chat, $form" "$(printf 'first: Gr\303\274\303\237e\nsecond: b\nfirst: c\nsecond: /d')"
  check "chat, $form: says more than the answers" [ ! -s "$work/err" ]
  run "chat goes on after a full context, $form" 1 "$invar" chat "${how[@]}" < <(printf 'a\nfull\nb')
  out_is "chat goes on after a full context, $form" "$(printf 'first: a\nsecond: b')"
  err_has "chat goes on after a full context, $form" "the context is full; /clear begins a new conversation (too many tokens)"
  run "chat after faults, $form" 1 "$invar" chat "${how[@]}" < <(printf 'cut\nfail\na\n')
  check "chat after faults, $form: the conversation goes on" [ "$(tail -1 "$work/out")" = "first: a" ]
  err_has "chat after faults, $form" "the connection ended before the answer did"
  err_has "chat after faults, $form" "on purpose"
  run "chat, cut answers, $form" 0 "$invar" chat "${how[@]}" -n 1 < <(echo brief)
  err_has "chat, cut answers, $form" "(cut off after 1 tokens; --max-tokens allows more)"
done
run "chat, commands" 1 "$invar" chat "${remote[@]}" --system "be kind" < <(printf '/system\n/system  be brief\n/system\n/help\n/nonsense\na\n')
out_is "chat, commands" "first: a"
for text in "be kind" "be brief" "/clear" "unknown command /nonsense"; do err_has "chat, commands" "$text"; done
check "chat: the system message was not sent" grep -qF '{\"role\":\"system\",\"content\":\"be brief\"}' "$work"/scripted-log/*.jsonl
run "chat, not UTF-8" 1 "$invar" chat "${remote[@]}" < <(printf 'caf\351\na\n')
err_has "chat, not UTF-8" "not UTF-8"
out_is "chat, not UTF-8" "first: a"
run "chat, raw when piped" 0 "$invar" chat "${remote[@]}" < <(echo escape)
out_is "chat, raw when piped" "$(printf 'a\033[2Jb\nc\td')"

run "chat without its key" 1 "$invar" chat --server "127.0.0.1:$port" < <(echo a)
err_has "chat without its key" "see --api-key"
run "chat without a server" 1 "$invar" chat --server "unix:$work/none.sock" < <(printf 'a\nb\n')
err_has "chat without a server" "no server answers there"
check "chat without a server: tried each line" [ "$(wc -l <"$work/err")" = 1 ]
refused "serve, a key file that is not there" 2 "there is no such file" "$invar" serve --port 0 --api-key "keys.txt"
refused "serve, an origin that is none" 2 "an origin is a scheme and a host" "$invar" serve --port 0 --cors-origin x
refused "chat, flags of two kinds" 2 "--threads is about a model that is loaded here" "$invar" chat "${remote[@]}" --threads 1
refused "serve, no time for prompts" 2 "--max-stall 0: must be a whole number from 1 to 60000" "$invar" serve --max-stall 0
refused "serve, a wait that is none" 2 "--max-wait -1: must be a whole number from 0 to 86400" "$invar" serve --max-wait -1
refused "serve, no place for the trace" 1 "--step-trace $work/none/trace: No such file" "$invar" serve --port 0 \
  --model "$tiny" --step-trace "$work/none/trace"
refused "chat, a key for nobody" 2 "--api-key is for a running server" "$invar" chat --api-key secret
refused "chat, a wrong address" 2 "only http, https and unix" "$invar" chat --server ftp://x
refused "chat, an argument" 2 "unexpected argument hello" "$invar" chat hello

# ---- chat in a terminal of its own
if type -P script >/dev/null; then
  mkfifo "$work/keys"
  # terminal NAME COMMAND: sets `pid`; keys go to descriptor 4, what is shown is in $work/screen.
  terminal() {
    : >"$work/screen"
    script -qfec "$1" /dev/null <"$work/keys" >"$work/screen" 2>&1 &
    pid=$!
    exec 4>"$work/keys"
  }
  see() { check "terminal: '$1' is not shown" wait_for "$work/screen" "$1" $pid; }
  terminal "'$invar' chat ${remote[*]}"
  see "> "
  printf 'escape\n' >&4
  see 'a\x1b[2Jb'
  check "terminal: an escape reaches it" [ "$(grep -c $'\033\[2J' "$work/screen")" = 0 ]
  printf 'long\n' >&4
  see "one two three"
  printf '\003' >&4
  see "(stopped)"
  printf 'still there?\n' >&4
  see "third: still there?"
  printf 'half a line\003' >&4
  see "(once more, or Ctrl-D, leaves)"
  printf '/exit\n' >&4
  wait $pid
  code=$?
  check "terminal: exit code $code after /exit" [ $code = 0 ]
  exec 4>&-
  terminal "'$invar' chat ${remote[*]}"
  see "> "
  printf '\003' >&4
  see "(once more, or Ctrl-D, leaves)"
  printf '\003' >&4
  wait $pid
  code=$?
  check "terminal: exit code $code after two Ctrl-C" [ $code = 130 ]
  exec 4>&-
  terminal "'$invar' chat ${remote[*]}"
  see "> "
  printf '\004' >&4
  wait $pid
  code=$?
  check "terminal: exit code $code after Ctrl-D" [ $code = 0 ]
  exec 4>&-
else
  echo "NOT RUN: serve_cli_test: chat in a terminal, which needs the program script (util-linux)"
  not_run=$((not_run + 1))
fi

# ---- replay of what the scripted server did
run "replay, scripted" 0 "$invar" replay "$work/scripted-log" --scripted "$work/script.json" </dev/null
out_has "replay, scripted" ", 0 different, "
out_has "replay, scripted" "not compared: its answer, 401, was about the connection"
sed 's/second: /zweitens: /' "$work/script.json" >"$work/other.json"
run "replay, another script" 1 "$invar" replay "$work/scripted-log" --scripted "$work/other.json" </dev/null
out_has "replay, another script" "differs: frame "
check "replay, another script: values" grep -qE 'recorded  |replayed  ' "$work/out"
kill -TERM $scripted_pid
wait $scripted_pid
code=$?
check "the scripted server ends with exit code $code" [ $code = 0 ]

# ---- the first signal says how many answers it waits for, the second does not wait
start_server slow --scripted "$work/script.json"
post /v1/chat/completions '{"messages":[{"role":"user","content":"long"}],"stream":true}' "$work/slow.txt" &
check "the slow answer does not begin" wait_for "$work/slow.txt" "one" $pid
kill -TERM $pid
check "what is ending is not said" wait_for "$work/slow.log" "invar: 1 answer is ending; again = stop at once" $pid
kill -TERM $pid
wait $pid
code=$?
check "the second signal: exit code $code" [ $code = 130 ]
check "the banner tells of keys that are not there" bash -c '! grep -qE "[0-9] keys?" "$1"' _ "$work/slow.log"

# ---- SIGTERM while the model is packed: stopped in the act, then ended. Nothing was accepted yet.
caught_while_packing serve --port 0
check "SIGTERM while loading: never caught in the act" [ -n "$caught" ]
check "SIGTERM while loading: exit code $code" [ $code = 0 ]
err_has "SIGTERM while loading" "stopped before the model was loaded"
check "SIGTERM while loading: a file is left" [ -z "$(ls "$work/packing/invar/packed")" ]

# ---- the packed file is cut while it serves: one line, and an exit code of its own
cut_cache=$work/cut
mkdir -p "$cut_cache"
XDG_CACHE_HOME=$cut_cache start_server cut --model "$model"
for _ in $(seq 300); do compgen -G "$cut_cache/invar/packed/*.packed" >/dev/null && break; sleep 0.1; done
truncate -s 8192 "$cut_cache"/invar/packed/*.packed
post /v1/completions '{"prompt":"a","max_tokens":4}' "$work/cut.json"
wait $pid
code=$?
check "the packed file is cut: exit code $code" [ $code = 1 ]
check "the packed file is cut: nothing is said" grep -qF "the file was cut short while it was in use" "$work/cut.log"

# ---- the real model: one answer in many ways
start_server real --request-log "$work/log" --threads 1
run "chat with a server and without" 0 "$invar" chat --server "http://127.0.0.1:$port" --seed 5 -n 12 < <(printf 'Name a fruit.\nAnd another?\n')
check "chat: no answer" [ -s "$work/out" ]
cp "$work/out" "$work/remote"
run "chat on a model of its own" 0 "$invar" chat --seed 5 -n 12 < <(printf 'Name a fruit.\nAnd another?\n')
check "chat: the server answers otherwise" cmp -s "$work/out" "$work/remote"
run "chat, a bias outside the vocabulary" 1 "$invar" chat --logit-bias 999999:1 < <(echo a)
err_has "chat, a bias outside the vocabulary" "--logit-bias 999999"

request='{"messages":[{"role":"user","content":"Name a river."}],"max_tokens":16,"n":2}'
stream='{"prompt":"The capital of France is","max_tokens":12,"logprobs":2,"stream":true,"temperature":0.9}'
printf %s "$request" >"$work/request.json"
printf %s "$stream" >"$work/stream.json"
post /v1/chat/completions "$request" "$work/answer.json"
post /v1/completions "$stream" "$work/stream.txt"
post /v1/completions "$stream" "$work/stream2.txt"
post /v1/completions '{"prompt":1}' "$work/refused.json"
post /tokenize '{"content":"hello world"}' "$work/tokens.json"
post /nothing '{}' "$work/unknown.json"
exec 3<>"/dev/tcp/127.0.0.1/$port"
printf 'GET /v1/models HTTP/1.0\r\n\r\n' >&3
check "models: no answer" grep -q '"created":' <&3
exec 3<&- 3>&-
check "two random seeds are equal" [ "$(grep -o '"seed":[0-9]*' "$work/stream.txt")" != "$(grep -o '"seed":[0-9]*' "$work/stream2.txt")" ]

for how in "" "--isa scalar --prefill-chunk 1" "--server http://127.0.0.1:$port"; do
  # shellcheck disable=SC2086
  run "verify $how" 0 "$invar" verify "$work/answer.json" "$work/request.json" $how </dev/null
  out_has "verify $how" "agree: output_digest $(grep -o '"output_digest":"[^"]*' "$work/answer.json" | cut -d'"' -f4)"
  # shellcheck disable=SC2086
  run "verify a stream $how" 0 "$invar" verify "$work/stream.txt" "$work/stream.json" $how </dev/null
done
grep -o '"invar":{[^}]*}' "$work/answer.json" | sed 's/^"invar"://' >"$work/receipt.json"
run "verify the receipt alone" 0 "$invar" verify - "$work/request.json" <"$work/receipt.json"
# differs NAME FIELD RECEIPT REQUEST FLAGS...
differs() {
  local name=$1 field=$2
  shift 2
  run "verify, $name" 1 "$invar" verify "$@" </dev/null
  out_has "verify, $name" "differ: $field"
}
sed 's/"output_digest":"[0-9a-f]\{4\}/"output_digest":"0000/' "$work/receipt.json" >"$work/forged.json"
differs "a forged digest" output_digest "$work/forged.json" "$work/request.json"
differs "a forged digest, by the server" output_digest "$work/forged.json" "$work/request.json" --server "http://127.0.0.1:$port"
sed 's/river/lake/' "$work/request.json" >"$work/lake.json"
differs "another request" output_digest "$work/receipt.json" "$work/lake.json"
sed 's/}$/,"seed":1}/' "$work/request.json" >"$work/seeded.json"
differs "another seed" seed "$work/receipt.json" "$work/seeded.json"
differs "another model" model_digest "$work/receipt.json" "$work/request.json" --model "$tiny"
differs "another type of cache" kv "$work/receipt.json" "$work/request.json" --kv f32
refused "verify one file" 2 "give two files" "$invar" verify "$work/receipt.json"
refused "verify without a receipt" 2 "no receipt in it" "$invar" verify "$work/request.json" "$work/request.json"
refused "verify noise" 2 "neither JSON nor" "$invar" verify /bin/true "$work/request.json"
refused "verify a missing file" 2 "$work/none" "$invar" verify "$work/none" "$work/request.json"
refused "verify no request" 2 "neither \"messages\" nor \"prompt\"" "$invar" verify "$work/receipt.json" "$work/tokens.json"
refused "verify without a server" 2 "no server answers there" "$invar" verify "$work/receipt.json" "$work/request.json" --server "unix:$work/none.sock"
refused "verify what is refused" 2 "with status 400" "$invar" verify "$work/receipt.json" "$work/stream.json" --endpoint chat

# ---- replay of what the real server did, while it runs and after its end
run "replay, with the server" 0 "$invar" replay "$work/log" --server "http://127.0.0.1:$port" </dev/null
out_has "replay, with the server" ", 0 different, 0 not compared"
kill -TERM $pid
wait $pid
code=$?
check "the server ends with exit code $code" [ $code = 0 ]
# The replay itself was logged, too: the first lines are what is compared from here on.
run "replay, without a server" 0 "$invar" replay "$work/log" --isa scalar --request 4 </dev/null
out_has "replay, without a server" "1 the same, 0 different"
run "replay, all without a server" 0 "$invar" replay "$work/log" </dev/null
out_has "replay, all without a server" ", 0 different, 0 not compared"
number=$(sed -n 's|^ *\([0-9]*\)  POST /v1/completions  same: status 200, .* frames|\1|p' "$work/out" | head -1)
mkdir "$work/forged-log"
sed 's/\(\\"token_logprobs\\":\[\)-[0-9.e-]*/\1-0.5/' "$work"/log/requests-000001.jsonl >"$work/forged-log/requests-000001.jsonl"
run "replay, a forged log" 1 "$invar" replay "$work/forged-log" --request "$number" </dev/null
out_has "replay, a forged log" ".logprobs.token_logprobs[0]"
out_has "replay, a forged log" "differs: frame 1, choices[0]"
out_has "replay, a forged log" "recorded  -0.5"
run "replay, another model" 1 "$invar" replay "$work/log" --model "$tiny" --request "$number" </dev/null
head -c 3000 "$work"/log/requests-000001.jsonl >"$work/cut.jsonl"
run "replay, a cut file" 0 "$invar" replay "$work/cut.jsonl" </dev/null
err_has "replay, a cut file" "1 lines are damaged"
refused "replay nothing" 2 "give one log" "$invar" replay
refused "replay a missing file" 2 "$work/none" "$invar" replay "$work/none"
refused "replay without an end" 2 "neither a file nor a directory" "$invar" replay /dev/zero
refused "replay an empty directory" 2 "no file of a request log" "$invar" replay "$HOME"
refused "replay a number beyond" 2 "--request 9999: the log has" "$invar" replay "$work/log" --request 9999
refused "replay without a server" 2 "no server answers there" "$invar" replay "$work/log" --server "unix:$work/none.sock"

# ---- the trace of steps
start_server traced --model "$tiny" --ctx 64 --step-trace "$work/trace"
post /v1/completions '{"prompt": [1, 2, 3], "max_tokens": 4, "ignore_eos": true}' "$work/traced.json"
kill -TERM "$pid"
wait "$pid" 2>/dev/null
check "step trace: an object per step" [ "$(grep -c '^{"step":[0-9]*,.*"predicted_ns":[0-9]*,.*}$' "$work/trace")" = 4 ]
check "step trace: the prompt is in the first" grep -q '^{"step":0,.*"prompt_rows":1,.*"tokens":3,' "$work/trace"

for verb in chat verify replay serve; do
  run "$verb --help" 0 "$invar" $verb --help </dev/null
  out_has "$verb --help" Examples:
  out_has "$verb --help" "Exit code:"
done

summary
