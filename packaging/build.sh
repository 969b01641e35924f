# Sourced by ./invar and .ci/run: configures and builds a preset and shows its progress. Expects ROOT and deps.sh.

# How many compilations run at once: one per core, but not more than memory carries (about 1 GiB each).
job_count() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo 2>/dev/null || echo "$cores")
  ((memory < 1)) && memory=1
  echo "${INVAR_JOBS:-$((cores < memory ? cores : memory))}"
}

# What cargo has done so far, while it runs: ninja is silent about a command until its end (cmake/cargo_build).
rust_progress() { # DIRECTORY SINCE: a file that is older than this build
  local log=$1/cargo.log
  [[ -e $log && $log -nt $2 ]] || return 0
  printf '; Rust part (takes some minutes): %d crates' "$(grep -c -E '^ +Compiling ' "$log" || :)"
}

# Shows the progress of ninja, read from stdin, and keeps everything in the log: one line that changes each second on a
# terminal, elsewhere a line every INTERVAL (15) seconds. ninja first looks for new files and may configure again, with totals of its own.
show_progress() { # LOG LABEL START DIRECTORY SINCE [INTERVAL]
  trap '' INT # ninja ends by it, and then this
  local line part= code done= name= shown=$SECONDS every=${6:-15} text
  [[ -t 2 ]] && every=1
  while :; do
    code=0
    IFS= read -r -t 1 line || code=$?
    part+=$line # of a line that is not there to its end yet
    if ((code == 0)); then
      line=$part part=
      printf '%s\n' "$line" >>"$1"
      if [[ $line != *"] Re-checking globbed"* && $line != *"] Re-running CMake"* && $line =~ ^\[([0-9]+)/([0-9]+)\]\ (.*)$ ]]; then
        done="${BASH_REMATCH[1]} of ${BASH_REMATCH[2]}" name=${BASH_REMATCH[3]##*/}
      fi
    elif ((code <= 128)); then
      [[ -z $part ]] || printf '%s\n' "$part" >>"$1"
      break
    fi
    ((SECONDS - shown >= every)) || continue
    shown=$SECONDS
    text="building $2: ${done:-beginning}, $((SECONDS - $3)) s$(rust_progress "$4" "$5")"
    if [[ -t 2 ]]; then
      printf '\r\033[K%.*s' "$((${COLUMNS:-80} - 1))" "$text${name:+; $name}" >&2
    else
      say "$text"
    fi
  done
  [[ -t 2 ]] && printf '\r\033[K' >&2
  return 0
}

# build_preset PRESET TARGET ...: needs CXX_COMPILER, C_COMPILER and CARGO_PROGRAM. Fails with the lines that matter.
build_preset() {
  local preset=$1 directory=$ROOT/build/$1 log=$ROOT/build/$1/build.log compiler=() start=$SECONDS
  shift
  mkdir -p "$directory"
  : >"$log"
  touch "$directory/.begun"
  local rust=$ROOT/build/bridge
  [[ $preset == fuzz ]] && rust=$directory/bridge
  [[ $preset == gcc ]] || compiler=("-DCMAKE_CXX_COMPILER=$CXX_COMPILER" "-DCMAKE_C_COMPILER=$C_COMPILER")
  # A cache of another compiler, or of a repository that has moved, would be refused.
  local cached
  cached=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$directory/CMakeCache.txt" 2>/dev/null || :)
  if [[ -n $cached && $cached != "$ROOT" ]]; then rm -rf "$directory/CMakeCache.txt" "$directory/CMakeFiles"; fi
  if ! (cd "$ROOT" && cmake --preset "$preset" "${compiler[@]}" "-DINVAR_CARGO=$CARGO_PROGRAM") >>"$log" 2>&1 </dev/null; then
    grep -A 6 -E '^CMake Error|not found|NOT FOUND' "$log" | head -n 25 >&2 || tail -n 25 "$log" >&2
    say "configuring failed; the whole log is in $log"
    return 1
  fi
  if ! NINJA_STATUS='[%f/%t] ' ninja -C "$directory" -j "$(job_count)" "$@" 2>&1 </dev/null |
    show_progress "$log" "$preset" "$start" "$rust" "$directory/.begun"; then
    { sed -n '/^FAILED: /,$p' "$log" | grep -v -E '^(\[|ninja: build stopped)' | cut -c 1-300 | head -n 40; } >&2
    say "building failed; the whole log is in $log"
    return 1
  fi
  ((SECONDS - start < 2)) || say "built $preset in $((SECONDS - start)) s"
}
