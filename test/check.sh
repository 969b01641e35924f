# Sourced by the end-to-end tests: a home of their own with the default model in its cache, checks, and their sum.
# Expects `work`, a temporary folder, `model`, the default model's path, and `invar`, the program.

export XDG_CACHE_HOME=$work/cache HOME=$work/home
unset INVAR_ISA HF_HOME HF_HUB_CACHE HF_ENDPOINT HF_TOKEN HF_TOKEN_PATH HF_HUB_OFFLINE
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

# caught_while_packing VERB FLAGS...: starts the program on $model with an empty cache, stops it with an unfinished packed
# file there, then ends it by SIGTERM. Sets `code`, its exit code, and `caught`, empty if ten attempts came too late; the
# cache is $work/packing.
caught_while_packing() {
  local attempt
  for attempt in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf "$work/packing" && mkdir -p "$work/packing"
    XDG_CACHE_HOME=$work/packing "$invar" "$@" --model "$model" >"$work/out" 2>"$work/err" </dev/null &
    pid=$!
    while kill -0 $pid 2>/dev/null && ! compgen -G "$work/packing/invar/packed/*.tmp.*" >/dev/null; do :; done
    kill -STOP $pid
    caught=$(compgen -G "$work/packing/invar/packed/*.tmp.*")
    kill -TERM $pid
    kill -CONT $pid
    wait $pid
    code=$?
    [ -z "$caught" ] || break
  done
}

# The last lines, and the exit code of the test.
summary() {
  [ $not_run = 0 ] || echo "$not_run not run"
  echo "$passed passed, $failed failed"
  [ "$failed" = 0 ]
}
