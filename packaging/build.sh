# Sourced by ./invar and .ci/run: configures and builds a preset with one progress line. Expects ROOT and deps.sh.

# How many compilations run at once: one per core, but not more than memory carries (about 1 GiB each).
job_count() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo 2>/dev/null || echo "$cores")
  ((memory < 1)) && memory=1
  echo "${INVAR_JOBS:-$((cores < memory ? cores : memory))}"
}

# Shows the progress of ninja, read from stdin, and keeps everything in the log.
show_progress() { # LOG LABEL
  local line shown=0
  while IFS= read -r line; do
    printf '%s\n' "$line" >>"$1"
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\]\ (.*)$ ]] || continue
    if [[ -t 2 ]]; then
      printf '\r\033[K%.*s' "$((${COLUMNS:-80} - 1))" "building $2 [${BASH_REMATCH[1]}/${BASH_REMATCH[2]}] ${BASH_REMATCH[3]##*/}" >&2
    elif ((shown == 0 || SECONDS - shown >= 15)); then
      say "building $2: ${BASH_REMATCH[1]} of ${BASH_REMATCH[2]}"
      shown=$((SECONDS == 0 ? 1 : SECONDS))
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
  if ! NINJA_STATUS='[%f/%t] ' ninja -C "$directory" -j "$(job_count)" "$@" 2>&1 </dev/null | show_progress "$log" "$preset"; then
    { sed -n '/^FAILED: /,$p' "$log" | grep -v -E '^(\[|ninja: build stopped)' | cut -c 1-300 | head -n 40; } >&2
    say "building failed; the whole log is in $log"
    return 1
  fi
  ((SECONDS - start < 2)) || say "built $preset in $((SECONDS - start)) s"
}
