# Sourced by ./invar and .ci/run: finds what a build needs and installs what is missing through apt.
# Sets CXX_COMPILER, C_COMPILER and CARGO_PROGRAM. Expects ROOT, the repository.

say() { printf 'invar: %s\n' "$*" >&2; }
fail() {
  say "$*"
  exit 1
}

is_installed() { # every package of "$*"
  local want=$# have
  # A package can be there for two architectures: count names.
  have=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "$@" 2>/dev/null | sort -u | grep -c ' installed$' || :)
  ((have == want))
}

# Asks apt once which of the packages in `missing` it can install; is_known answers from that.
ask_apt() {
  # shellcheck disable=SC2046
  known=" $(apt-cache policy $(printf '%s\n' "${missing[@]}" | tr '|' ' ') 2>/dev/null |
    awk '/^[^ ]/ { name = $1; sub(/:$/, "", name) } /^  Candidate: [^(]/ { printf "%s ", name }') "
}

is_known() { # every package of "$*"
  local package
  for package in "$@"; do
    [[ $known == *" $package "* ]] || return 1
  done
}

cargo_is_new_enough() { # PROGRAM
  local version
  version=$("$1" --version 2>/dev/null) || return 1
  version=${version#cargo }
  [[ $version =~ ^([0-9]+)\.([0-9]+) ]] && ((BASH_REMATCH[1] > 1 || BASH_REMATCH[2] >= 87))
}

find_cargo() {
  local program
  for program in cargo "${HOME:-}/.cargo/bin/cargo" /usr/bin/cargo cargo-1.9{9,8,7,6,5,4,3,2,1,0} cargo-1.8{9,8,7}; do
    if type -P "$program" >/dev/null && cargo_is_new_enough "$program"; then
      CARGO_PROGRAM=$(type -P "$program")
      # A cargo that is not the first on PATH must not meet another compiler there.
      local rustc=${CARGO_PROGRAM/%cargo/rustc}
      rustc=${rustc/cargo-/rustc-}
      [[ -x $rustc ]] && export RUSTC=$rustc
      return 0
    fi
  done
  return 1
}

# The needs of the given occasions that no installed alternative meets, one line of alternatives each, in `missing`.
find_missing() {
  missing=()
  local when alternatives alternative met occasion
  while read -r when alternatives; do
    [[ -z $when || $when == \#* ]] && continue
    for occasion in "$@"; do
      [[ $when == "$occasion" ]] || continue
      met=
      while read -r alternative; do
        # shellcheck disable=SC2086
        if is_installed $alternative; then met=1 && break; fi
      done < <(tr '|' '\n' <<<"$alternatives")
      # npm also comes with other distributions of Node.
      if [[ -z $met && $alternatives == npm ]] && type -P npm >/dev/null; then met=1; fi
      [[ -n $met ]] || missing+=("$alternatives")
    done
  done <"$ROOT/packaging/debian-deps.txt"
  find_cargo || missing+=("rustc-web cargo-web | rustc-1.91 cargo-1.91 | rustc-1.89 cargo-1.89")
}

# The first alternative of each missing need that apt knows, in `packages`; needs without one in `unknown`.
choose_packages() {
  packages=() unknown=()
  local need alternative found known
  ask_apt
  for need in "${missing[@]}"; do
    found=
    while read -r alternative; do
      # shellcheck disable=SC2086
      if is_known $alternative; then
        # shellcheck disable=SC2206
        packages+=($alternative)
        found=1
        break
      fi
    done < <(tr '|' '\n' <<<"$need")
    [[ -n $found ]] || unknown+=("$need")
  done
}

# ensure_packages OCCASION ...: all needs of these occasions are met when it returns.
ensure_packages() {
  local missing packages unknown as_root=() log=$ROOT/build/apt.log
  if ! type -P dpkg-query apt-get >/dev/null; then
    find_cargo || fail "no cargo >= 1.87 found, and this is not a Debian or Ubuntu system: install Rust and try again"
    return 0 # CMake names what else it misses
  fi
  find_missing "$@"
  ((${#missing[@]} == 0)) && return 0

  local install="apt-get install -y --no-install-recommends"
  if [[ ${INVAR_NO_INSTALL:-0} != 0 ]] || { ((EUID != 0)) && ! type -P sudo >/dev/null; }; then
    choose_packages
    say "missing packages: ${packages[*]} ${unknown[*]}"
    say "as root, install them with: apt-get update && $install ${packages[*]} ${unknown[*]%% |*}"
    exit 1
  fi
  ((EUID == 0)) || as_root=(sudo)
  as_root+=(env DEBIAN_FRONTEND=noninteractive)
  mkdir -p "$ROOT/build"
  say "apt-get update"
  "${as_root[@]}" apt-get update </dev/null >"$log" 2>&1 || say "apt-get update failed: $(tail -n 1 "$log")"
  choose_packages
  ((${#unknown[@]} == 0)) || fail "apt offers none of: $(printf '[%s] ' "${unknown[@]}")"
  say "$install ${packages[*]}"
  # shellcheck disable=SC2086
  if ! "${as_root[@]}" $install "${packages[@]}" </dev/null >>"$log" 2>&1; then
    tail -n 15 "$log" >&2
    fail "apt-get failed; the whole log is in $log"
  fi
  find_missing "$@"
  ((${#missing[@]} == 0)) || fail "still missing after the installation: ${missing[*]} (log: $log)"
}

# The compiler of the release build: clang 19 where it is there, else another that is known to work.
find_compiler() {
  local version
  for version in 19 20 18 17 16; do
    if type -P "clang++-$version" "ld.lld-$version" >/dev/null; then
      CXX_COMPILER=clang++-$version C_COMPILER=clang-$version
      [[ $version == 19 ]] || say "clang 19 is not here: building with clang $version"
      return 0
    fi
  done
  for version in -14 -13 -12 ""; do
    if type -P "g++$version" >/dev/null && (($("g++$version" -dumpversion | cut -d. -f1) >= 12)); then
      CXX_COMPILER=g++$version C_COMPILER=gcc$version
      say "no clang >= 16 with lld here: building with $CXX_COMPILER"
      return 0
    fi
  done
  fail "no usable compiler: clang >= 16 with lld, or g++ >= 12, is needed"
}
