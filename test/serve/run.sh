#!/usr/bin/env bash
# One of the server's tests, with a cache of its own. usage: test/serve/run.sh TEST.py INVAR MODEL [unittest arguments]
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
test=$1 INVAR=$(realpath "$2") INVAR_MODEL=$(realpath "$3")
shift 3
type -P python3 >/dev/null || { echo "python3 is missing" && echo "0 passed, 1 failed" && exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export INVAR INVAR_MODEL XDG_CACHE_HOME=$work/cache HOME=$work TMPDIR=$work PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
unset INVAR_ISA
python3 "$here/$test" "$@" 2>&1
