#!/usr/bin/env bash
# The official OpenAI clients against `invar serve`. Installs them, as pinned here, into FOLDER unless they are there.
# Prints each runner's own sum, "N passed, N failed". usage: test/clients/run.sh INVAR MODEL FOLDER [python|node]
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
INVAR=$(realpath "$1") INVAR_MODEL=$(realpath "$2")
mkdir -p "$3" && folder=$(cd "$3" && pwd)
which=${4:-both}
status=0
lost() { echo "clients: $*" && echo "0 passed, 1 failed" && status=1; }

# Debian's python3 rather than one that happens to be the first on PATH: python3-venv belongs to it.
python=/usr/bin/python3
[[ -x $python ]] || python=$(type -P python3)

install_python() {
  local stamp=$folder/python/.installed
  cmp -s "$here/requirements.txt" "$stamp" && return
  rm -rf "$folder/python"
  "$python" -m venv "$folder/python" &&
    "$folder/python/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$here/requirements.txt" &&
    cp "$here/requirements.txt" "$stamp"
}

install_node() {
  local stamp=$folder/node/.installed
  cmp -s "$here/package-lock.json" "$stamp" && return
  rm -rf "$folder/node" && mkdir -p "$folder/node" && cp "$here"/package.json "$here"/package-lock.json "$folder/node" &&
    (cd "$folder/node" && npm ci --silent --no-audit --no-fund --ignore-scripts) && cp "$here/package-lock.json" "$stamp"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export INVAR INVAR_MODEL PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
unset INVAR_ISA OPENAI_API_KEY OPENAI_BASE_URL OPENAI_ORG_ID OPENAI_PROJECT_ID
# The clients would send what is for this machine to a proxy.
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1

if [[ $which != node ]]; then
  if install_python </dev/null; then
    echo "clients: Python, $("$folder/python/bin/pip" freeze --disable-pip-version-check | grep '^openai=')"
    XDG_CACHE_HOME=$work/cache TMPDIR=$work "$folder/python/bin/python" "$here/openai_python.py" </dev/null 2>&1 || status=1
  else
    lost "the Python client of requirements.txt could not be installed; is there a network, and python3-venv?"
  fi
fi
if [[ $which != python ]]; then
  if install_node </dev/null; then
    echo "clients: Node, $(cd "$folder/node" && npm ls --parseable --long 2>/dev/null | sed -n 's|.*:\(openai@[^:]*\).*|\1|p')"
    XDG_CACHE_HOME=$work/cache TMPDIR=$work node "$here/openai_node.mjs" "$folder/node" </dev/null 2>&1 || status=1
  else
    lost "the Node client of package-lock.json could not be installed; is there a network, and npm?"
  fi
fi
exit $status
