# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by ./runexp, ./flat_tokens and ./runtests: installs what is missing, builds what is stale,
# one process at a time. Says nothing and costs milliseconds when there is nothing to do.

root=${BASH_SOURCE[0]%/*}/..
build=$root/build/release
stamp=$build/.launch_stamp

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
give_up() { say "$*"; exit 2; }

# Whether a program of ours may be out of date: anything it is made from, folders included, is newer
# than the last build.
is_stale() {
  [[ -e $stamp && -x $build/bin/runexp && -x $build/bin/flat_tokens ]] || return 0
  mpi_is_new && return 0
  local newer
  newer=$(find "$root"/{CMakeLists.txt,CMakePresets.json,cmake,core,layers,inputs,tasks} \
               "$root"/{plugins,experiments} -newer "$stamp" -print -quit) || return 0
  [[ -n $newer ]]
}

under_mpirun() {
  [[ -n ${OMPI_COMM_WORLD_RANK-}${PMIX_RANK-}${PMI_RANK-}${MPI_LOCALRANKID-} ]] ||
    [[ -n ${SLURM_STEP_ID-} && ${SLURM_STEP_NUM_TASKS:-1} -gt 1 ]]
}

# Whether MPI was installed after the last build, which did without it.
mpi_is_new() {
  [[ -e $build/lib/tessera/transports/mpi.so ]] && return 1
  local compiler
  compiler=$(command -v mpicc) && [[ -n $(find "$compiler" -cnewer "$stamp" 2>/dev/null) ]]
}

# Installs the packages of cmake/packages.txt of the kinds named ("build", "test").
install_packages() {
  command -v dpkg-query >/dev/null || return 0  # Not Debian: CMake will say what it misses.
  local kinds=" $* " kind package missing=()
  while read -r kind package; do
    [[ -n $package && $kinds == *" $kind "* ]] || continue
    [[ $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) == *" installed" ]] ||
      missing+=("$package")
  done < <(grep -v '^#' "$root/cmake/packages.txt")
  ((${#missing[@]})) || return 0
  local as_root=()
  if ((EUID != 0)); then
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
      as_root=(sudo)
    else
      give_up "packages are missing; install them with: apt-get install ${missing[*]}"
    fi
  fi
  say "installing ${missing[*]}"
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600)
  { "${as_root[@]}" "${apt[@]}" update &&
    "${as_root[@]}" "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } \
    >"$build/install.log" 2>&1 || {
    tail -n 5 "$build/install.log" >&2
    give_up "installing failed (all of it: $build/install.log); by hand: apt-get install ${missing[*]}"
  }
}

# As many compilers as there are processors and as memory (1.5 GB each) allows.
compile_jobs() {
  local processors memory_kb=0
  processors=$(nproc)
  [[ -r /proc/meminfo ]] && memory_kb=$(awk '/^MemAvailable/ {print $2}' /proc/meminfo)
  local by_memory=$((memory_kb / 1500000))
  ((memory_kb == 0 || by_memory > processors)) && by_memory=$processors
  echo $((by_memory > 0 ? by_memory : 1))
}

# run_logged LOG COMMAND…: on a terminal the output is shown, elsewhere only if it fails.
run_logged() {
  local log=$1
  shift
  if [[ -t 2 ]]; then
    "$@" >&2
  else
    "$@" >"$log" 2>&1 || { grep -E -A3 'error|FAILED|CMake Error' "$log" | head -n 40 >&2; return 1; }
  fi
}

# build_targets KINDS TARGET…: under the lock, installs packages of these kinds and builds.
build_targets() {
  local kinds=$1 begun
  shift
  mkdir -p "$build"
  exec 9>"$build/.launch_lock"
  flock -n 9 || { say "waiting for another build to end"; flock 9; }
  # shellcheck disable=SC2086  # Several kinds are several words.
  install_packages $kinds
  begun=$build/.launch_begun
  touch "$begun"  # What changes while the build runs is for the next one.
  if [[ ! -e $build/build.ninja ]] || mpi_is_new; then
    [[ -e $build/build.ninja ]] || say "building; the first time takes a few minutes"
    run_logged "$build/configure.log" cmake -S "$root" --preset release ||
      give_up "configuring failed (all of it: $build/configure.log)"
  fi
  run_logged "$build/build.log" ninja -C "$build" -j "$(compile_jobs)" "$@" ||
    give_up "building failed (all of it: $build/build.log)"
  mv "$begun" "$stamp"
  exec 9>&-  # Or the program would hold the lock as long as it runs.
}

# launch PROGRAM ARGUMENT…: becomes the program, after building it if need be.
launch() {
  local program=$1
  shift
  if is_stale; then
    under_mpirun && give_up "not built, or older than its sources; run ./$program once without mpirun"
    build_targets build programs
  fi
  exec "$build/bin/$program" "$@"
}
