#!/usr/bin/env bash
# usage: test/shapes/run.sh INVAR [NAME ...]
# Files with the published shapes of real models (make_shape.py), one after the other: the audit of names and shapes,
# packing, a prompt and a token, and what memory that took. Ends with "N passed, N failed". A model needs about 2.3
# times the bytes of its file on the disk below TMPDIR; one for which there is no room is reported as not run.
set -euo pipefail
invar=$1
shift
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 not_run=0

check() { # NAME COMMAND ...
  local name=$1
  shift
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: $name" >&2
    tail -n 5 "$work/out" >&2 || :
  fi
}

resident_mib() {
  awk '/^peak_kib / { print int($2 / 1024) }' "$work/peak"
}

# Runs a command and writes its peak of resident memory, the pages of mapped files among it.
measured() {
  python3 - "$work/peak" "$@" <<'P'
import resource, subprocess, sys
code = subprocess.run(sys.argv[2:], stdin=subprocess.DEVNULL).returncode
with open(sys.argv[1], "w") as file:
    file.write(f"peak_kib {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss}\n")
sys.exit(code)
P
}

shape() { # NAME BYTES
  local name=$1 bytes=$2 file=$work/$1.gguf free peak
  free=$(df --output=avail -B 1 "$work" | tail -n 1)
  if ((bytes * 23 / 10 > free)); then
    echo "NOT RUN: $name needs $((bytes * 23 / 10 >> 20)) MiB of disk, there are $((free >> 20))"
    not_run=$((not_run + 1))
    return
  fi
  echo "$name: $((bytes >> 20)) MiB"
  python3 "$here/make_shape.py" "$name" "$file"
  export XDG_CACHE_HOME=$work/cache
  check "$name: inspect" "$invar" inspect --model "$file" >"$work/out" 2>&1
  check "$name: packing, prompt, token" measured "$invar" bench --model "$file" --ctx 512 --memory 512MiB --prompt 8 \
    --decode 2 --reps 1 >"$work/out" 2>&1
  peak=$(resident_mib)
  # Mapped weights count while memory is plentiful; what comes on top is the pool, scratch and the program.
  check "$name: $peak MiB resident" test "$peak" -le $(((bytes * 11 / 10 >> 20) + 512))
  grep -E '^(prompt|decode)' "$work/out" || :
  rm -rf "$file" "$work/cache"
}

wanted=" $* "
while read -r name bytes; do
  [[ $# -gt 0 && $wanted != *" $name "* ]] || shape "$name" "$bytes"
done < <(python3 "$here/make_shape.py" --list)
((not_run == 0)) || echo "$not_run not run"
echo "$passed passed, $failed failed"
((failed == 0))
