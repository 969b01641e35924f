#!/usr/bin/env bash
# End-to-end tests of the program: real files, real processes, exit codes and messages.
# usage: test/cli_test.sh INVAR MODEL DATA
#   INVAR    the program
#   MODEL    SmolLM2-135M-Instruct.Q4_1.gguf
#   DATA     test/data
set -uo pipefail

invar=$(realpath "$1") model=$2 data=$3 oracles=$3/oracles
for f in "$invar" "$model" "$oracles/gguf/lossless/llama-untied.gguf"; do
  [ -e "$f" ] || { echo "cli_test: $f is missing; the start script fetches the default model: ./invar test"; exit 1; }
done
model=$(realpath "$model") data=$(realpath "$data") oracles=$(realpath "$oracles")
tiny=$oracles/gguf/lossless/llama-untied.gguf

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=check.sh
source "$(dirname "${BASH_SOURCE[0]}")/check.sh"

# refused NAME CODE TEXT COMMAND...: ends with the code and one short message that holds the text.
refused() {
  local name=$1 code=$2 text=$3
  shift 3
  run "$name" "$code" "$@"
  err_has "$name" "$text"
  check "$name: not one message" [ "$(wc -l <"$work/err")" = 1 ]
  check "$name: long message" [ "$(wc -c <"$work/err")" -le 600 ]
}

# ---- answers

run "capital of France" 0 "$invar" run --raw --temp 0 -n 16 "The capital of France is" </dev/null
out_has "capital of France" Paris
cp "$work/out" "$work/paris"
run "chat" 0 "$invar" run --temp 0 -n 48 "The capital of France is" </dev/null
out_has "chat" Paris
run "piped prompt" 0 "$invar" run --raw --temp 0 -n 16 < <(echo "The capital of France is")
check "piped prompt differs" cmp -s "$work/out" "$work/paris"
run "prompt and pipe" 0 "$invar" run --temp 0 -n 8 "Repeat:" < <(echo "apple")
check "prompt and pipe: no answer" [ -s "$work/out" ]

for settings in "--threads 1" "--isa scalar" "--prefill-chunk 1" "--max-batch 1"; do
  # shellcheck disable=SC2086
  run "same text with $settings" 0 "$invar" run --raw --temp 0 -n 16 $settings "The capital of France is" </dev/null
  check "text changed by $settings" cmp -s "$work/out" "$work/paris"
done
INVAR_ISA=scalar run "same text with INVAR_ISA" 0 "$invar" run --raw --temp 0 -n 16 -v --stats "The capital of France is" </dev/null
check "text changed by INVAR_ISA" cmp -s "$work/out" "$work/paris"
err_has "INVAR_ISA" scalar

printf '%s\n' "Name a fruit." "Write one line about the sea, with an emoji." "What is 2+3?" >"$work/prompts"
run "several prompts" 0 "$invar" run --file "$work/prompts" --temp 0.8 --seed 5 -n 24 </dev/null
cp "$work/out" "$work/batch"
check "several prompts: headers" [ "$(grep -c '^==> prompt [123] <==$' "$work/batch")" = 3 ]
check "several prompts: not UTF-8" iconv -f UTF-8 -t UTF-16 -o /dev/null "$work/batch"
{
  i=0
  while read -r line; do
    i=$((i + 1))
    [ $i = 1 ] || echo
    echo "==> prompt $i <=="
    "$invar" run --temp 0.8 --seed 5 -n 24 "$line" </dev/null
  done <"$work/prompts"
} >"$work/single" 2>/dev/null
check "a batch differs from one by one" cmp -s "$work/batch" "$work/single"
printf '{"prompt": "Name a fruit."}\n{"prompt": "What is 2+3?"}\n' >"$work/prompts.jsonl"
run "JSON lines" 0 "$invar" run --file "$work/prompts.jsonl" --temp 0 -n 4 </dev/null
out_has "JSON lines" "==> prompt 2 <=="

# A bad prompt is named with its line; the others are answered as if it were not there.
printf '\xef\xbb\xbf{"prompt": "Name a fruit."}\n{"prompt": "Name\n{"prompt": "caf\\ud800"}\n{"prompt": "What is 2+3?"}\n' >"$work/mixed"
run "bad prompts among others" 1 "$invar" run --file "$work/mixed" --temp 0 -n 4 </dev/null
err_has "bad prompts among others" "mixed: line 2: not JSON"
err_has "bad prompts among others" "mixed: line 3: "
err_has "bad prompts among others" "2 of 4 prompts failed"
check "bad prompts among others: headers" [ "$(grep '^==> ' "$work/out" | tr -dc 14)" = 14 ]
cp "$work/out" "$work/mixed.out"
run "the others alone" 0 "$invar" run --file "$work/prompts.jsonl" --temp 0 -n 4 </dev/null
check "bad prompts change the others" cmp -s <(sed 's/^==> prompt 2/==> prompt 4/' "$work/out") "$work/mixed.out"
run "a long prompt among others" 1 "$invar" run --file - --ctx 64 --temp 0 -n 4 < <(printf '%s\n' "$(seq 200 | tr '\n' ' ')" "Name a fruit.")
err_has "a long prompt among others" "standard input: line 1: prompt: "
out_has "a long prompt among others" "==> prompt 2 <=="

run "log probabilities" 0 "$invar" run --raw --temp 0 -n 3 --logprobs 2 "The capital of France is" </dev/null
check "log probabilities: lines" [ "$(grep -c 'alternatives:' "$work/out")" = 3 ]
run "system message" 0 "$invar" run --system "Answer in French." --temp 0 -n 4 hello </dev/null
run "seed is shown" 0 "$invar" run -v -n 2 hello </dev/null
err_has "seed is shown" "temperature 0.7, seed "
err_has "seed is shown" "(reserved address space, not memory in use)"
run "temperature by its long name" 0 "$invar" run --raw --temperature 0 -n 16 "The capital of France is" </dev/null
check "temperature by its long name: another text" cmp -s "$work/out" "$work/paris"
err_has "a cut answer" "(cut off after 16 tokens; -n allows more)"
run "cut by the context" 0 "$invar" run --raw --temp 0 --ctx 8 --ignore-eos -n 99 "The capital of France is" </dev/null
err_has "cut by the context" "tokens: the context is full)"
run "cut answers of several" 0 "$invar" run --file "$work/prompts" --temp 0 --ignore-eos -n 2 </dev/null
err_has "cut answers of several" "(prompt 3: cut off after 2 tokens; -n allows more)"
run "an answer that is not cut" 0 "$invar" run --temp 0 -n 200 "What is 2+3? Answer with one number." </dev/null
check "an answer that is not cut: says it is" [ ! -s "$work/err" ]
if type -P script >/dev/null; then # a terminal
  run "no prompt, on a terminal" 2 script -qefc "'$invar' run" /dev/null </dev/null
  out_has "no prompt, on a terminal" "for a conversation: invar chat"
  run "random seed, on a terminal" 0 script -qefc "'$invar' run -n 2 hello" /dev/null </dev/null
  out_has "random seed, on a terminal" "temperature 0.7, seed "
else
  echo "NOT RUN: cli_test: run on a terminal, which needs the program script (util-linux)"
  not_run=$((not_run + 1))
fi

# ---- memory: packed weights, 64 MB and the pool; while packing (a fresh cache) and after
mib() { sed -n "s/.*$1 \([0-9.]*\) MiB.*/\1/p" "$work/err" | head -1; }
for state in fresh warm; do
  [ $state = warm ] || rm -rf "$XDG_CACHE_HOME/invar/packed"
  run "memory, $state cache" 0 "$invar" run --stats --memory 32MiB --ctx 512 --temp 0 -n 16 "Why is the sky blue?" </dev/null
  peak=$(mib "peak resident") packed=$(mib "packed weights")
  check "memory, $state cache: peak $peak MiB, packed $packed MiB" \
    awk -v peak="$peak" -v packed="$packed" 'BEGIN { exit !(peak > 10 && packed > 10 && peak - 32 <= packed + 64) }'
done

# ---- Ctrl-C
rm "$work/out"  # whatever an earlier command wrote there would pass for the story's first words
"$invar" run --ignore-eos -n 5000 --temp 0 "Tell me a long story." >"$work/out" 2>"$work/err" </dev/null &
pid=$!
for _ in $(seq 600); do [ -s "$work/out" ] && break; sleep 0.1; done
kill -INT $pid
start=$SECONDS
wait $pid
code=$?
check "Ctrl-C: exit code $code" [ $code = 130 ]
check "Ctrl-C: took long" [ $((SECONDS - start)) -le 5 ]
check "Ctrl-C: what was printed is lost" [ -s "$work/out" ]
check "Ctrl-C: ends in the middle of a line" [ -z "$(tail -c 1 "$work/out")" ]

printf '[%s1]' "$(printf '1,%.0s' $(seq 6000))" >"$work/long.json"
"$invar" logits --tokens "$work/long.json" --out "$work/long.npy" >"$work/out" 2>"$work/err" </dev/null &
pid=$!
for _ in $(seq 600); do [ -n "$(ls "$work" | grep long.npy)" ] && break; sleep 0.1; done
kill -INT $pid
wait $pid
code=$?
check "Ctrl-C in logits: exit code $code" [ $code = 130 ]
check "Ctrl-C in logits: a file is left" [ -z "$(ls "$work" | grep long.npy)" ]

# SIGTERM while packing: stopped with the unfinished file in the cache, then ended.
caught_while_packing bench --reps 1
check "SIGTERM while packing: never caught in the act" [ -n "$caught" ]
check "SIGTERM while packing: exit code $code" [ $code = 130 ]
check "SIGTERM while packing: a file is left" [ -z "$(ls "$work/packing/invar/packed")" ]

# ---- inspect, tokenize, logits, bench, help
run "inspect" 0 "$invar" inspect "$model" --tensors
out_has "inspect" "verdict    runs"
out_has "inspect" "Q4_1"
run "inspect a folder" 0 "$invar" inspect "$oracles/models/qwen2-bias" --json
out_has "inspect a folder" '"runs":true'
windowed=$work/windowed-llama  # windows, of which this family knows nothing
mkdir "$windowed"
cp "$oracles/models/qwen2-swa/model.safetensors" "$windowed"
sed 's/"model_type": "qwen2"/"model_type": "llama"/' "$oracles/models/qwen2-swa/config.json" >"$windowed/config.json"
run "inspect what does not run" 1 "$invar" inspect "$windowed"
out_has "inspect what does not run" "does not run"
out_has "inspect what does not run" sliding_attention

run "tokenize" 0 "$invar" tokenize --ids "Hello <|im_end|>"
ids=$(cat "$work/out")
check "special text is one token" grep -q ', 2\]' "$work/out"
run "decode" 0 "$invar" tokenize --decode "$ids"
check "decode gives the text back" [ "$(cat "$work/out")" = "Hello <|im_end|>" ]
run "plain special text" 0 "$invar" tokenize --ids --no-special "Hello <|im_end|>"
check "plain special text is no special token" [ "$(cat "$work/out")" != "$ids" ]

echo '[1, 2, 3, 473, 4, 5]' >"$work/ids.json"
for isa in scalar avx2 avx512; do
  if [ $isa = avx2 ] && ! grep -qw avx2 /proc/cpuinfo || [ $isa = avx512 ] && ! grep -qw avx512_vnni /proc/cpuinfo; then
    echo "NOT RUN: cli_test: logits with the instruction set $isa, which this CPU lacks"
    not_run=$((not_run + 1))
    continue
  fi
  run "logits, $isa" 0 "$invar" logits --model "$tiny" --tokens "$work/ids.json" --kv f32 --isa $isa --out "$work/$isa.npy"
  check "logits, $isa: size" [ $(($(stat -c %s "$work/$isa.npy") % 64)) = $((6 * 480 * 4 % 64)) ]
  check "logits, $isa: differ from scalar" cmp -s "$work/scalar.npy" "$work/$isa.npy"
done

# The frozen rows of the outside implementation, through the program and its .npy file.
for name in llama-untied.gguf llama-q256-Q4_K.gguf llama-untied qwen2-bias; do
  frozen=$data/reference_bits/$name
  path=$(sed -n 's/^{"model":"\([^"]*\)".*/\1/p' "$frozen.json")
  vocab=$(sed -n 's/.*"vocab":\([0-9]*\).*/\1/p' "$frozen.json") row=0
  grep -o '"ids":\[[0-9,]*\]' "$frozen.json" | sed 's/"ids"://' >"$work/sequences"
  grep -o '"full_rows":\[[0-9,]*\]' "$frozen.json" | tr -dc '0-9,\n' >"$work/positions"
  while read -r ids <&3 && read -r positions <&4; do
    echo "$ids" >"$work/reference.ids"
    run "reference $name" 0 "$invar" logits --model "$oracles/$path" --tokens "$work/reference.ids" --kv f32 \
      --out "$work/reference.npy" </dev/null
    header=$(($(stat -c %s "$work/reference.npy") - $(tr -dc , <<<"$ids," | wc -c) * vocab * 4))
    for position in ${positions//,/ }; do
      check "reference $name: row $position differs" cmp -s -n $((vocab * 4)) \
        -i $((header + position * vocab * 4)):$((row * vocab * 4)) "$work/reference.npy" "$frozen.rows"
      row=$((row + 1))
    done
  done 3<"$work/sequences" 4<"$work/positions"
  check "reference $name: $row rows compared" [ $row -ge 3 ]
  check "reference $name: rows left over" [ $((row * vocab * 4)) = "$(stat -c %s "$frozen.rows")" ]
done
run "bench" 0 "$invar" bench "$tiny" --prompt 16 --decode 4 --depth 0,32,100000 --sequences 1,3 --reps 1 --json
out_has "bench" '"name":"decode, depth 32","prompt_tokens":32,"decode_tokens":4,"sequences":1,"median_tokens_per_s"'
out_has "bench" '"name":"decode, 3 sequences"'
out_has "bench" '"left_out":"decode, depth 100000"'
run "bench with a profile" 0 "$invar" bench "$tiny" --prompt 16 --decode 4 --depth 0 --sequences 1 --reps 1 --profile \
  --json --trace "$work/trace.json"
out_has "bench with a profile" '"profiles":[{"case":"prompt 16","steps":1,'
out_has "bench with a profile" '"name":"attn.q+attn.k+attn.v"'
run "a trace is JSON" 0 python3 -c '
import json, sys
spans = json.load(open(sys.argv[1]))
names = {span["name"] for span in spans}
assert {"step", "plan", "forward", "attn", "sample", "publish"} <= names, names
steps = [s for s in spans if s["name"] == "step"]
phases = [s for s in spans if s.get("cat") == "phase"]
assert all(any(t["ts"] <= p["ts"] and p["ts"] + p["dur"] <= t["ts"] + t["dur"] + 0.01 for t in steps) for p in phases)
' "$work/trace.json"
run "no place for a trace" 1 "$invar" bench "$tiny" --trace "$work/none/trace.json"
err_has "no place for a trace" "--trace $work/none/trace.json: No such file"
run "bench of two models" 2 "$invar" bench "$tiny" --model "$tiny"
err_has "bench of two models" "one model at a time"
run "bench of nothing" 2 "$invar" bench "$tiny" --prompt 0 --decode 0
err_has "bench of nothing" "nothing to measure"
run "bench with a hole in a list" 2 "$invar" bench "$tiny" --depth 0,,5
err_has "bench with a hole in a list" "--depth"
run "perplexity" 0 "$invar" perplexity "$tiny" --json
out_has "perplexity" '"bits_per_byte":'
cp "$work/out" "$work/perplexity"
run "perplexity of one thread and chunks" 0 "$invar" perplexity --model "$tiny" --json --threads 1 --prefill-chunk 7 --isa scalar
check "perplexity: digits changed by threads and chunks" cmp -s "$work/out" "$work/perplexity"
run "perplexity of a file" 0 "$invar" perplexity "$tiny" --file "$data/templates/chatml.jinja" --window 32 --stride 8
out_has "perplexity of a file" "of at most 32 tokens (1 before the text), stride 8"
run "convert to MLX-4" 0 "$invar" convert "$oracles/models/llama-untied" "$work/mlx" --type MLX-4 --json
out_has "convert to MLX-4" '"types":{"BF16":7,"MLX-4":14}'
run "inspect of MLX-4" 0 "$invar" inspect "$work/mlx"
out_has "inspect of MLX-4" "verdict    runs"
run "kl of a lossless twin" 0 "$invar" kl "$oracles/models/llama-untied" "$tiny" --json
out_has "kl of a lossless twin" '"top1_agreement":1E0'
run "kl of a quantized file" 0 "$invar" kl "$oracles/models/llama-q256" "$oracles/gguf/quant/llama-q256-Q4_K.gguf"
out_has "kl of a quantized file" "KL(A||B)    mean 0.08"
run "kl of two caches" 0 "$invar" kl "$tiny" --kv-a f32 --kv-b bf16 --json
out_has "kl of two caches" '"kv":"bf16"'
echo "[313, 5, 9, 70, 12]" >"$work/kl-ids.json"
run "kl of ids" 0 "$invar" kl "$oracles/models/llama-q256" "$oracles/gguf/quant/llama-q256-Q8_0.gguf" --tokens "$work/kl-ids.json"
out_has "kl of ids" "5 tokens, 4 scored"
# ---- convert
bf16=$oracles/gguf/quant/llama-q256-BF16.gguf
run "convert" 0 "$invar" convert "$bf16" "$work/q8.gguf" --type Q8_0
out_has "convert" "top-1       "
err_has "convert" "comparing: "
run "convert: the file runs" 0 "$invar" inspect "$work/q8.gguf" --tensors
out_has "convert: the file runs" "verdict    runs"
out_has "convert: the file runs" "Q8_0    [256, 256]              69632 u8z128"
run "convert to a packed model" 0 "$invar" convert "$oracles/models/llama-untied" "$work/m.packed" --packed
out_has "convert to a packed model" "digest "
run "packed model: logits" 0 "$invar" logits --model "$work/m.packed" --tokens "$work/ids.json" --out "$work/packed.npy"
run "packed model: logits of its source" 0 "$invar" logits --model "$oracles/models/llama-untied" --tokens "$work/ids.json" \
  --out "$work/source.npy"
run "packed model: the same bits" 0 cmp "$work/packed.npy" "$work/source.npy"
run "packed model: inspect" 0 "$invar" inspect "$work/m.packed"
out_has "packed model: inspect" 'packed model of "llama-untied"'
run "packed model: is not converted" 1 "$invar" convert "$work/m.packed" "$work/again.gguf"
err_has "packed model: is not converted" "convert its source, llama-untied, instead"
mkdir "$work/piped" && cp "$oracles/models/llama-untied"/* "$work/piped" && rm -f "$work/piped/tokenizer.json" && mkfifo "$work/piped/tokenizer.json"
refused "packed model: a pipe in the folder" 1 "regular file" timeout 20 "$invar" convert "$work/piped" "$work/piped.packed" --packed
run "packed model: types" 0 "$invar" convert "$bf16" "$work/t.packed" --packed --type MLX-4 --json
out_has "packed model: types" '"types":{"F32":3,"MLX-4":9}'
out_has "packed model: types" '"kl":{"mean":1.29'
run "packed model: types: inspect" 0 "$invar" inspect "$work/t.packed"
out_has "packed model: types: inspect" "9 MLX4_BF16"
refused "packed model: types of a packed model" 1 "convert its source" "$invar" convert "$work/t.packed" "$work/u.packed" --packed --type Q8_0
run "packed model: cut" 1 bash -c "head -c 5000 '$work/m.packed' >'$work/cut.packed'; exec '$invar' inspect '$work/cut.packed'"
err_has "packed model: cut" "$work/cut.packed"
run "convert as JSON" 0 "$invar" convert "$bf16" "$work/q4.gguf" --type Q4_K --json --threads 1
out_has "convert as JSON" '"top1_agreement":'
cp "$work/q4.gguf" "$work/q4.first"
printf 'caf\xe9' >"$work/latin1"
refused "convert: a text that cannot be scored" 1 "not UTF-8" "$invar" convert "$bf16" "$work/unwritten.gguf" --type Q4_K --file "$work/latin1"
check "convert: nothing is written then" test ! -e "$work/unwritten.gguf"
run "convert again" 0 "$invar" convert "$bf16" "$work/q4.gguf" --type Q4_K --no-kl --overwrite
out_has "convert again" "not measured: --no-kl"
check "convert again: other bytes with more threads" cmp -s "$work/q4.gguf" "$work/q4.first"
run "convert into the cache" 0 "$invar" convert "$oracles/models/llama-q256"
out_has "convert into the cache" "in the cache"
refused "convert, exists" 2 "--overwrite" "$invar" convert "$bf16" "$work/q4.gguf"
refused "convert onto itself" 1 "is the source itself" "$invar" convert "$work/q4.gguf" "$work/q4.gguf" --overwrite
refused "convert, target" 2 "must end in .gguf" "$invar" convert "$bf16" "$work/q4.bin"
refused "convert, no source" 2 "SRC DST" "$invar" convert
refused "convert, type of the cache" 2 "name the target" "$invar" convert "$bf16" --type Q8_0
run "convert a folder" 0 "$invar" convert "$oracles/models/llama-q256" "$work/folder.gguf"
out_has "convert a folder" "top-1       100.00"
refused "convert, no form" 1 "no form of gemma3n_text" "$invar" convert "$oracles/models/gemma3n-text" "$work/x.gguf"
refused "convert, no folder" 1 "cannot create" "$invar" convert "$bf16" "$work/none/x.gguf"
check "convert: a file is left" [ -z "$(ls "$work" | grep -E 'x.gguf|tmp')" ]

# ---- names: the cache of a hub as another tool has filled it (src/cli/hub tests what pull does)
commit=0123456789abcdef0123456789abcdef01234567
repo=$XDG_CACHE_HOME/huggingface/hub/models--own--tiny
mkdir -p "$repo"/{blobs,refs,snapshots/$commit}
cp "$tiny" "$repo/blobs/one"
ln -s ../../blobs/one "$repo/snapshots/$commit/tiny-F32.gguf"
printf %s $commit >"$repo/refs/main"
folder=$XDG_CACHE_HOME/huggingface/hub/models--own--folder
mkdir -p "$folder"/{refs,snapshots}
cp -r "$oracles/models/llama-untied" "$folder/snapshots/$commit"
printf %s $commit >"$folder/refs/v1"
run "ls" 0 "$invar" ls
out_has "ls" "smollm2-135m"
out_has "ls" "own/tiny:tiny-F32.gguf"
out_has "ls" "own/folder@v1"
run "ls as JSON" 0 "$invar" ls --json
out_has "ls as JSON" '"model":"own/tiny:tiny-F32.gguf","revision":"main (0123456789ab)"'
run "a short name" 0 "$invar" tokenize --model smollm2-135m Hello
for name in own/tiny own/tiny:F32 own/tiny:tiny-F32.gguf@$commit own/folder@v1; do
  run "inspect $name" 0 "$invar" inspect "$name"
  out_has "inspect $name" "verdict    runs"
  run "perplexity of $name" 0 "$invar" perplexity --model "$name" --json
  check "perplexity of $name is another" cmp -s <(sed 's/.*"text"//' "$work/out") <(sed 's/.*"text"//' "$work/perplexity")
done
refused "a repository that is not there" 1 "invar pull own/none" "$invar" run --model own/none hello
refused "a revision that is not there" 1 "revision v2 is not in the cache" "$invar" run --model own/tiny@v2 hello
refused "a quantization that is not there" 1 "has no Q2_K; it has tiny-F32.gguf" "$invar" run --model own/tiny:Q2_K hello
refused "a short name that is not there" 1 "invar pull gemma3-270m" "$invar" run --model gemma3-270m hello
refused "a mistyped short name" 1 "did you mean gemma3-270m" "$invar" run --model gemma-270m hello
refused "pull without a name" 2 "which model" "$invar" pull
refused "pull of a short name that is none" 2 "no short name (smollm2-135m, gemma3-270m) and no owner/name" "$invar" pull qwen
refused "rm of a short name that is none" 2 "no short name (smollm2-135m, gemma3-270m) and no owner/name" "$invar" rm qwen
refused "a model that is none" 1 "short names are smollm2-135m, gemma3-270m" "$invar" run --model qwen hello
refused "pull of a path" 2 "no name of a repository" "$invar" pull ./x
HF_ENDPOINT=ftp://x refused "pull, endpoint" 1 "HF_ENDPOINT" "$invar" pull own/tiny
HF_HUB_OFFLINE=1 refused "pull, offline" 1 "HF_HUB_OFFLINE" "$invar" pull own/tiny
HF_TOKEN=$'a\nsecret' refused "pull, token" 1 "HF_TOKEN: holds" "$invar" pull own/tiny
check "pull, token: it is shown" bash -c '! grep -q secret "$1"' _ "$work/err"
run "rm, dry" 0 "$invar" rm --dry-run own/tiny
check "rm, dry: removed" [ -e "$repo/blobs/one" ]
copies() { ls "$XDG_CACHE_HOME/invar/packed" | grep -c -E "^(one|$commit)-" || :; }
check "rm: no packed copies to take along" [ "$(copies)" = 2 ]
run "rm" 0 "$invar" rm own/tiny own/folder@v1
check "rm: packed copies are left" [ "$(copies)" = 0 ]
check "rm: left" [ -z "$(ls "$XDG_CACHE_HOME/huggingface/hub")" ]
refused "rm of what is gone" 1 "not in the cache" "$invar" rm own/tiny
HF_HUB_CACHE=$work/elsewhere run "ls elsewhere" 0 "$invar" ls

for verb in run inspect logits tokenize bench perplexity kl convert pull ls rm; do
  run "$verb --help" 0 "$invar" $verb --help
  out_has "$verb --help" Examples:
done
run "--help" 0 "$invar" --help
check "--help differs from packaging/overview.txt, which the start script shows" \
  cmp "$work/out" "$(dirname "$0")/../packaging/overview.txt"
run "--version" 0 "$invar" --version
out_has "--version" ", numerics "

# ---- bad input
refused "kl of one model" 2 "nothing to compare" "$invar" kl "$tiny"
refused "kl of three" 2 "two models" "$invar" kl "$tiny" "$tiny" "$tiny"
refused "kl of unlike vocabularies" 1 "has 480 tokens" "$invar" kl "$tiny" "$oracles/models/llama-q256"
refused "kl without a tokenizer" 1 "--tokens" "$invar" kl "$tiny" "$oracles/gguf/lossless/minicpm-scaled.gguf"
refused "perplexity of nothing" 1 "has no two tokens" "$invar" perplexity "$tiny" --window 9 --file /dev/null
refused "perplexity, window" 1 "--window 513" "$invar" perplexity "$tiny" --ctx 512 --window 513
refused "perplexity, stride" 1 "--stride 40" "$invar" perplexity "$tiny" --window 40 --stride 40
refused "perplexity, two texts" 2 "not both" "$invar" perplexity "$tiny" --file a --tokens b
refused "perplexity, ids" 1 "outside the vocabulary" "$invar" perplexity "$tiny" --tokens <(echo "[1, 99999]")
refused "unknown verb" 2 "did you mean run?" "$invar" rnu
refused "unknown flag" 2 "did you mean --threads?" "$invar" run --thread 2 hello
refused "bad value" 2 "--temp hot" "$invar" run --temp hot hello
refused "unknown set" 2 "--isa avx3" "$invar" run --isa avx3 hello
INVAR_ISA=avx3 refused "unknown set in INVAR_ISA" 1 "INVAR_ISA" "$invar" run hello </dev/null
refused "value out of range" 2 "--top-p 1.5" "$invar" run --top-p 1.5 hello
refused "penalty out of range" 2 "--repeat-penalty 0" "$invar" run --repeat-penalty 0 hello
refused "context out of range" 2 "--ctx 0" "$invar" run --ctx 0 hello
refused "empty value" 2 "--model needs a value" "$invar" run --model= "$tiny" hello
refused "half a bias" 2 "must be ID:X" "$invar" run --logit-bias : hello
refused "bias outside the vocabulary" 1 "--logit-bias 999999" "$invar" run --logit-bias 999999:1 hello </dev/null
refused "stop id outside the vocabulary" 1 "--stop-id 999999" "$invar" run --stop-id 999999 hello </dev/null
refused "inspect of nothing" 2 "FILE is empty" "$invar" inspect ""
refused "inspect of two" 2 "FILE or --model" "$invar" inspect --model "$tiny" "$tiny"
refused "tokenize in two forms" 2 "either --ids or --json" "$invar" tokenize --ids --json hello
refused "tokenize both ways" 2 "--ids is about turning text into ids, --decode" "$invar" tokenize --ids --decode 1,2
refused "no prompt" 1 "no prompt" "$invar" run </dev/null
refused "missing prompt file" 1 "$work/none" "$invar" run --file "$work/none"
refused "missing model" 1 "$work/none.gguf" "$invar" run --model "$work/none.gguf" hello </dev/null
XDG_CACHE_HOME=$work/empty refused "missing default model" 1 "--model FILE" "$invar" run hello </dev/null

head -c 4096 /dev/urandom >"$work/noise.gguf"
refused "corrupt model" 1 noise.gguf "$invar" run --model "$work/noise.gguf" hello </dev/null
refused "corrupt model, inspect" 1 noise.gguf "$invar" inspect "$work/noise.gguf"
: >"$work/empty.gguf"
refused "empty model" 1 empty.gguf "$invar" run --model "$work/empty.gguf" hello </dev/null
for bytes in 3 20 1000 20000 200000; do
  head -c $bytes "$tiny" >"$work/short.gguf"
  refused "model cut to $bytes bytes" 1 short.gguf "$invar" run --model "$work/short.gguf" hello </dev/null
done
# Same-length replacements keep the offsets of the file.
LC_ALL=C sed 's/llama/zebra/g' "$tiny" >"$work/zebra.gguf"
refused "unknown architecture" 1 zebra "$invar" run --model "$work/zebra.gguf" hello </dev/null
run "inspect an unknown architecture" 1 "$invar" inspect --tensors "$work/zebra.gguf"
out_has "inspect an unknown architecture" "does not run"
out_has "inspect an unknown architecture" "blk.0.attn_q.weight"
LC_ALL=C sed 's/\(tokenizer.ggml.model.\{12\}\)gpt2/\1gptX/' "$tiny" >"$work/gptx.gguf"
refused "unknown tokenizer" 1 gptX "$invar" run --model "$work/gptx.gguf" hello </dev/null
# A name that would colour the terminal, clear it, or go on for ever, where the chat template was.
escaped() { check "$1: control characters" [ -z "$(LC_ALL=C tr -d '\n\40-\176\200-\377' <"$work/out")$(LC_ALL=C tr -d '\n\40-\176\200-\377' <"$work/err")" ]; }
name=$(LC_ALL=C grep -abo general.name "$tiny" | head -1 | cut -d: -f1)
cp "$tiny" "$work/escape.gguf"
printf '\033[2' | dd of="$work/escape.gguf" bs=1 seek=$((name + 12 + 4 + 8)) conv=notrunc status=none
run "name with an escape" 0 "$invar" run -v --raw --model "$work/escape.gguf" --temp 0 -n 1 hello </dev/null
check "name with an escape: shown" grep -qF 'model \x1b[2' "$work/err"
run "name with an escape, inspect" 0 "$invar" inspect "$work/escape.gguf"
escaped "name with an escape, inspect"
run "name with an escape, bench" 0 "$invar" bench --model "$work/escape.gguf" --prompt 4 --decode 0 --reps 1
escaped "name with an escape, bench"
cp -r "$oracles/models/qwen2-bias" "$work/hf"
chmod -R u+w "$work/hf"
sed -i '1s/{/{"k\\u001b[2J\\u009b": "\\u009b2J",/' "$work/hf/config.json"
echo "{{ raise_exception('\\x1b[2J' * 1000) }}" >"$work/hf/chat_template.jinja"
for form in "" --json; do
  # shellcheck disable=SC2086
  run "folder with escapes, inspect $form" 0 "$invar" inspect $form "$work/hf"
  escaped "folder with escapes, inspect $form"
  check "folder with escapes, inspect $form: C1" [ -z "$(LC_ALL=C grep -P '\xc2[\x80-\x9f]' "$work/out")" ]
done
refused "template that raises escapes" 1 "chat template" "$invar" run --model "$work/hf" hello </dev/null
escaped "template that raises escapes"
# Type 22 (IQ2_S) for one tensor: 17 bytes of name, dimensions (4 + 2*8), then the type.
cp "$tiny" "$work/type.gguf"
at=$(LC_ALL=C grep -abo token_embd.weight "$tiny" | head -1 | cut -d: -f1)
printf '\x63\x00\x00\x00' | dd of="$work/type.gguf" bs=1 seek=$((at + 37)) conv=notrunc status=none
refused "unknown tensor type" 1 token_embd.weight "$invar" run --model "$work/type.gguf" hello </dev/null
cp "$tiny" "$work/i8.gguf"
printf '\x18\x00\x00\x00' | dd of="$work/i8.gguf" bs=1 seek=$((at + 37)) conv=notrunc status=none
refused "unsupported tensor type" 1 "type I8" "$invar" run --model "$work/i8.gguf" hello </dev/null
run "inspect an unsupported tensor type" 1 "$invar" inspect --tensors "$work/i8.gguf"
out_has "inspect an unsupported tensor type" unsupported
refused "sliding window" 1 sliding_attention "$invar" run --model "$windowed" hello </dev/null
mkdir "$work/folder"
refused "folder without a model" 1 "a folder must be a Hugging Face model (config.json" "$invar" run --model "$work/folder" hello </dev/null

refused "prompt longer than the context" 1 "the context of 16 tokens, set by --ctx; shorten it or raise --ctx (up to" "$invar" run --ctx 16 "one two three four five six seven eight nine ten" </dev/null
# Far too long is refused before it is turned into tokens, and never read to its end.
head -c 12000000 /dev/zero | tr '\0' 'x' >"$work/huge"
refused "huge prompt" 1 "11.4 MiB of text are at least" timeout 20 "$invar" run <"$work/huge"
refused "huge prompt in a file" 1 "huge: line 1: prompt: 11.4 MiB" timeout 20 "$invar" run --file "$work/huge" </dev/null
refused "endless prompt" 1 "more than 16.0 MiB" timeout 20 "$invar" run < <(yes)
refused "endless file" 1 "more than 64.0 MiB" timeout 20 "$invar" run --file /dev/zero
refused "context beyond training" 1 "--rope-scaling yarn without a factor goes beyond that" "$invar" run --ctx 16384 hello </dev/null
refused "unknown rope scaling" 2 "give none, linear" "$invar" run --rope-scaling ntk hello </dev/null
refused "yarn by nothing" 1 "yarn:FACTOR, or --ctx N" "$invar" run --rope-scaling yarn hello </dev/null
refused "prefix cache of no size" 2 "--prefix-cache (off, or a size)" "$invar" run --prefix-cache some hello </dev/null
refused "pool too small" 1 "give --memory" "$invar" run --memory 1KiB hello </dev/null
refused "pool too small for the default context" 1 "give --ctx" "$invar" run --memory 4MiB hello </dev/null
echo '[1, 2, 999999]' >"$work/far.json"
refused "id outside the vocabulary" 1 999999 "$invar" logits --model "$tiny" --tokens "$work/far.json" --out "$work/far.npy"
echo 'nonsense' >"$work/far.json"
refused "ids that are no JSON" 1 "not JSON" "$invar" logits --model "$tiny" --tokens "$work/far.json" --out "$work/far.npy"
check "a failed run leaves no output" [ ! -e "$work/far.npy" ]
run "more threads than CPUs" 0 "$invar" run hello --threads 1000 -n 1 --temp 0
err_has "more threads than CPUs" "--threads 1000: this process may use"
refused "CPUs that are not there" 2 "is none of the" "$invar" run hello --cpus 0,60000
refused "text that is not UTF-8" 1 "UTF-8" "$invar" run --raw $'caf\xe9' </dev/null
refused "text that is not UTF-8, chat" 1 "UTF-8" "$invar" run $'caf\xe9' </dev/null

# ---- no space: a limit on file sizes stands for a full disk
(ulimit -f 4; refused "no space for logits" 1 "space" "$invar" logits --model "$tiny" --tokens "$work/ids.json" --out "$work/full.npy"; echo "$passed $failed" >"$work/counts")
read -r passed failed <"$work/counts"
check "no space: half a file is left" [ -z "$(ls "$work" | grep full.npy)" ]
rm -rf "$XDG_CACHE_HOME/invar/packed"
(ulimit -f 16; run "no space for packed weights" 0 "$invar" run --raw --temp 0 -n 16 "The capital of France is" </dev/null; echo "$passed $failed" >"$work/counts")
read -r passed failed <"$work/counts"
check "no space for packed weights: the text changed" cmp -s "$work/out" "$work/paris"
check "no space for packed weights: no note" [ -s "$work/err" ]
if [ -w /dev/full ]; then
  timeout 60 "$invar" run --raw --temp 0 -n 4 hello </dev/null >/dev/full 2>"$work/err"
  check "full standard output: exit code" [ $? = 1 ]
  err_has "full standard output" "standard output"
fi

summary
