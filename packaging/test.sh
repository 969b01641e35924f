# Sourced by ./invar: `./invar test` and its options. Expects ROOT, prepare and build_release.

test_usage() {
  cat <<'T'
usage: ./invar test [--filter REGEX] [--sanitize] [--fuzz SECONDS] [--tidy] [--clients] [--shapes]

  (no option)        builds everything and runs the core tests: unit tests, oracles, exactness, command line
  --filter REGEX     only the test programs whose name matches
  --sanitize         unit tests under AddressSanitizer + UBSan, then those with threads under ThreadSanitizer
  --fuzz SECONDS     every fuzz target for SECONDS
  --tidy             clang-tidy over every source file, as .clang-tidy wants it
  --clients          the official OpenAI clients, Python and Node, against the server
  --shapes           files with the shapes of real models of 0.3 to 12 GB: audit, packing, a token, memory

Exit code 0 only if everything that was asked for ran and passed.
T
}

# Sums of a ctest run, from its log: the cases of gtest programs and of scripts that print "N passed, N failed" (and
# "N not run"), and one for each other test.
summarize() { # LOG
  awk '
    /^[0-9]+\/[0-9]+ Test(ing)?: / { name = $NF; cases = 0 }
    /^\[  PASSED  \] [0-9]+ tests?\./ { passed += $4; cases += $4 }
    /^\[  FAILED  \] [0-9]+ tests?, listed below:/ { failed += $4; cases += $4 }
    /^[0-9]+ passed, [0-9]+ failed$/ { passed += $1; failed += $3; cases += $1 + $3 }
    /^\[  SKIPPED \] [0-9]+ tests?, listed below:/ { skipped += $4 }
    /^[0-9]+ not run$/ { skipped += $1 }
    /^Test Passed\.$/ { if (cases == 0) passed++ }
    /^Test Failed\.$/ || /^Test (time|Timeout)/ && /timeout/ { if (cases == 0) failed++ }
    END { printf "%d %d %d\n", passed, failed, skipped }' "$1"
}

# Runs ctest in build/PRESET with its arguments and adds to total_passed, total_failed, total_skipped.
run_ctest() { # PRESET ARGUMENT ...
  local preset=$1 status=0 counts log
  shift
  log=$ROOT/build/$preset/Testing/Temporary/LastTest.log
  rm -f "$log"
  (cd "$ROOT" && ctest --test-dir "build/$preset" --output-on-failure --no-tests=error "$@") </dev/null || status=$?
  read -r -a counts < <(summarize "$log" 2>/dev/null || echo 0 0 0)
  total_passed=$((total_passed + counts[0]))
  total_failed=$((total_failed + counts[1]))
  total_skipped=$((total_skipped + counts[2]))
  # A crash or a time-out leaves no line with a number.
  if ((status != 0 && counts[1] == 0)); then total_failed=$((total_failed + 1)); fi
  if ((counts[2] > 0)); then
    say "$preset: ${counts[2]} test cases were not run on this machine:"
    awk '/^\[  SKIPPED \] .*\.[A-Za-z0-9_\/]+$/ && !seen[$4]++ { print "    " $4 }
      /^NOT RUN: / && !seen[$0]++ { print "    " substr($0, 10) }' "$log" >&2
  fi
  return "$status"
}

# All sources are as .clang-format wants them; a version other than 19 would want something else.
check_format() {
  local log
  if ! type -P clang-format-19 >/dev/null; then
    say "format: not run, clang-format-19 is not here"
    total_skipped=$((total_skipped + 1))
  elif log=$(cd "$ROOT" && find src test bench \( -name '*.h' -o -name '*.cc' \) -print0 |
    xargs -0 clang-format-19 --dry-run -Werror 2>&1); then
    total_passed=$((total_passed + 1))
  else
    grep -E 'error:' <<<"$log" | awk -F: '!seen[$1]++ { print "    " $1 ":" $2 }' >&2
    say "format: clang-format-19 -i would change these files"
    total_failed=$((total_failed + 1))
    return 1
  fi
}

core_tests() {
  local status=0
  prepare build test
  if ((${#ctest_filter[@]} == 0)); then check_format || status=1; fi
  build_release all || return 1
  "$ROOT/packaging/fetch_model.sh" || return 1
  "$ROOT/test/fetch_tokenizers.sh" || return 1
  run_ctest release -j "$(job_count)" "${ctest_filter[@]}" || status=1
  return "$status"
}

# The unit tests of these folders, and tests of several folders by name; slow ones run a shorter list of cases
# (INVAR_TEST_REDUCED, src/base/testing/reduced.h).
asan_tests="base tensor format graph models kv kernels backends sampling engine text api server cli schedules_test"
tsan_tests="base format kv backends engine api server"

sanitized() { # PRESET FOLDER|NAME_test ...
  local preset=$1 folder targets=() names=
  shift
  for folder in "$@"; do
    if [[ $folder == *_test ]]; then
      [[ -e $ROOT/test/$folder.cc ]] || { say "no test/$folder.cc, which --sanitize is to run" && return 1; }
      targets+=("$folder")
      names+=${names:+|}$folder
      continue
    fi
    # A renamed folder must not lose its check in silence.
    [[ -n $(find "$ROOT/src/$folder" -name '*_test.cc' -print -quit 2>/dev/null) ]] ||
      { say "no tests in src/$folder, which --sanitize is to run" && return 1; }
    targets+=("${folder}_test")
    names+=${names:+|}$folder
  done
  build_preset "$preset" "${targets[@]}" || return 1
  INVAR_TEST_REDUCED=1 ASAN_OPTIONS=detect_stack_use_after_return=0 TSAN_OPTIONS=halt_on_error=1 \
    run_ctest "$preset" -j "$(job_count)" -R "^($names)\$"
}

sanitize_tests() {
  prepare build test sanitize
  "$ROOT/test/fetch_tokenizers.sh" || return 1
  local status=0
  # shellcheck disable=SC2086
  sanitized asan $asan_tests || status=1
  # shellcheck disable=SC2086
  sanitized tsan $tsan_tests || status=1
  return "$status"
}

fuzz_tests() { # SECONDS
  prepare build sanitize
  local source name status=0 corpus targets=()
  for source in "$ROOT"/test/fuzz/*_fuzz.cc; do
    [[ -e $source ]] || fail "no fuzz targets in test/fuzz"
    name=${source##*/}
    targets+=("fuzz_${name%_fuzz.cc}")
  done
  [[ $CXX_COMPILER == clang* ]] || fail "fuzzing needs clang"
  build_preset fuzz "${targets[@]}" || return 1
  for name in "${targets[@]}"; do
    corpus=$ROOT/build/fuzz/corpus/$name
    mkdir -p "$corpus"
    local seeds=()
    [[ -d $ROOT/test/fuzz/seeds/${name#fuzz_} ]] && seeds=("$ROOT/test/fuzz/seeds/${name#fuzz_}")
    [[ $name == fuzz_chat_template ]] && seeds+=("$ROOT/test/data/templates")
    say "$name for $1 s"
    if RUST_BACKTRACE=0 "$ROOT/build/fuzz/test/$name" -max_total_time="$1" -max_len=8192 -timeout=10 -rss_limit_mb=2048 \
      -malloc_limit_mb=256 -print_final_stats=1 \
      -artifact_prefix="$corpus/" "$corpus" "${seeds[@]}" </dev/null >"$ROOT/build/fuzz/$name.log" 2>&1; then
      tail -n 8 "$ROOT/build/fuzz/$name.log" | grep -E 'number_of_executed_units|peak_rss' >&2 || :
      total_passed=$((total_passed + 1))
    else
      tail -n 40 "$ROOT/build/fuzz/$name.log" >&2
      total_failed=$((total_failed + 1))
      status=1
    fi
  done
  return "$status"
}

# Kernels are compiled once per instruction set through wrappers; their sources are read as the portable build has them.
tidy_tests() {
  prepare build tidy
  build_release all || return 1
  local log=$ROOT/build/release/tidy.log commands=$ROOT/build/release/tidy files
  mapfile -t files < <(cd "$ROOT" && git ls-files 'src/*.cc' 2>/dev/null | grep -v '^src/kernels/cpu/')
  ((${#files[@]} > 0)) || { say "tidy: no sources found; is this a git clone?" && return 1; }
  # A precompiled header would have every check look through all that is in it, for each source.
  mkdir -p "$commands"
  sed 's/ -Xclang -include-pch -Xclang [^ ]*//' "$ROOT/build/release/compile_commands.json" >"$commands/compile_commands.json"
  say "tidy: ${#files[@]} files"
  local status=0
  (cd "$ROOT" && printf '%s\0' "${files[@]}" |
    xargs -0 -n 4 -P "$(job_count)" clang-tidy-19 -p build/release/tidy --quiet --warnings-as-errors='*') \
    >"$log" 2>/dev/null </dev/null || status=1
  if ((status == 0)); then
    total_passed=$((total_passed + 1))
  else
    grep -E '(error|warning):' "$log" | sort -u | sed "s|$ROOT/||" | head -n 60 >&2
    say "tidy: the whole log is in $log"
    total_failed=$((total_failed + 1))
  fi
  return "$status"
}

# Runs a script whose runners print "N passed, N failed" (and "N not run"), keeps its output in a log and adds them all.
run_counted() { # LOG COMMAND ...
  local log=$1 status=0 passed failed skipped
  shift
  "$@" </dev/null 2>&1 | tee "$log" || status=1
  read -r passed failed skipped < <(awk '
    /^[0-9]+ passed, [0-9]+ failed$/ { p += $1; f += $3 }
    /^[0-9]+ not run$/ { s += $1 }
    END { print p + 0, f + 0, s + 0 }' "$log")
  total_passed=$((total_passed + passed))
  total_failed=$((total_failed + failed))
  total_skipped=$((total_skipped + skipped))
  if ((status != 0 && failed == 0)); then total_failed=$((total_failed + 1)); fi
  return "$status"
}

client_tests() {
  prepare build test clients
  build_release invar || return 1
  "$ROOT/packaging/fetch_model.sh" || return 1
  local model=${XDG_CACHE_HOME:-$HOME/.cache}/invar/models/SmolLM2-135M-Instruct.Q4_1.gguf
  run_counted "$ROOT/build/release/clients.log" "$ROOT/test/clients/run.sh" "$PROGRAM" "$model" "$ROOT/build/clients"
}

# One after the other, below TMPDIR.
shape_tests() {
  prepare build
  build_release invar || return 1
  run_counted "$ROOT/build/release/shapes.log" "$ROOT/test/shapes/run.sh" "$PROGRAM"
}

is_count() { [[ ${1:-} =~ ^[1-9][0-9]*$ ]]; }

run_tests() {
  local total_passed=0 total_failed=0 total_skipped=0 status=0 ctest_filter=() steps=() step fuzz_seconds=0
  while (($# > 0)); do
    case $1 in
      --help | -h) test_usage && return 0 ;;
      --sanitize) steps+=(sanitize) ;;
      --tidy) steps+=(tidy) ;;
      --clients) steps+=(clients) ;;
      --shapes) steps+=(shapes) ;;
      --fuzz)
        is_count "${2:-}" || { echo "invar: --fuzz needs a number of seconds, for example --fuzz 60" >&2 && return 2; }
        fuzz_seconds=$2 steps+=(fuzz)
        shift
        ;;
      --filter)
        [[ -n ${2:-} ]] || { echo "invar: --filter needs a regular expression, for example --filter kernels" >&2 && return 2; }
        ctest_filter=(-R "$2")
        shift
        ;;
      *)
        echo "invar: unknown option $1 of test" >&2
        test_usage >&2
        return 2
        ;;
    esac
    shift
  done
  ((${#steps[@]} > 0)) || steps=(core)
  for step in "${steps[@]}"; do
    case $step in
      core) core_tests || status=1 ;;
      sanitize) sanitize_tests || status=1 ;;
      tidy) tidy_tests || status=1 ;;
      fuzz) fuzz_tests "$fuzz_seconds" || status=1 ;;
      clients) client_tests || status=1 ;;
      shapes) shape_tests || status=1 ;;
    esac
  done
  if ((status != 0 && total_failed == 0)); then total_failed=1; fi # a build or a download that failed
  ((total_skipped == 0)) || echo "$total_skipped not run"
  echo "$total_passed passed, $total_failed failed"
  return "$status"
}
