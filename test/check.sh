# Sourced by the end-to-end tests: a home of their own with the default model in its cache, checks, and their sum.
# Expects `work`, a temporary folder, and `model`, the default model's path.

export XDG_CACHE_HOME=$work/cache HOME=$work/home
unset INVAR_ISA
mkdir -p "$XDG_CACHE_HOME/invar/models" "$HOME"
ln -s "$model" "$XDG_CACHE_HOME/invar/models/SmolLM2-135M-Instruct.Q4_1.gguf"

passed=0 failed=0 not_run=0
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAILED: $1"; sed 's/^/    /' "$work/out" "$work/err" 2>/dev/null | head -12; }
check() { if "${@:2}"; then ok; else bad "$1"; fi; }

# run NAME CODE COMMAND...: output in $work/out and $work/err.
run() {
  local name=$1 want=$2 got=0
  shift 2
  timeout 300 "$@" >"$work/out" 2>"$work/err" || got=$?
  if [ "$got" = "$want" ]; then ok; else bad "$name: exit code $got instead of $want"; fi
}
out_has() { check "$1: output lacks '$2'" grep -qF -- "$2" "$work/out"; }
err_has() { check "$1: message lacks '$2'" grep -qF -- "$2" "$work/err"; }
out_is() { check "$1: output is not '$2'" [ "$(cat "$work/out")" = "$2" ]; }

# The last lines, and the exit code of the test.
summary() {
  [ $not_run = 0 ] || echo "$not_run not run"
  echo "$passed passed, $failed failed"
  [ "$failed" = 0 ]
}
