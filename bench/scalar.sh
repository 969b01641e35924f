#!/usr/bin/env bash
# Time of the plainest instruction set: a prompt of 1500 tokens of the default model with --isa scalar. The bound is
# 90 s on two cores of a current x86-64 server; it says that scalar remains usable, not that it is fast. A measurement
# of time, so no part of ./invar test.
# usage: bench/scalar.sh [MODEL.gguf]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bound=90

model=()
[[ -n ${1:-} ]] && model=(--model "$1")
start=$(date +%s%N)
"$root/invar" bench "${model[@]}" --isa scalar --threads 2 --prompt 1500 --decode 0 --reps 1
seconds=$((($(date +%s%N) - start) / 1000000000))
echo "whole run: $seconds s (start, warm-up and one repetition; bound: $bound s)"
((seconds < bound)) || {
  echo "too slow: more than $bound s" >&2
  exit 1
}
