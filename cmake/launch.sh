# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by ./runexp, ./flat_tokens and ./runtests: installs missing packages and builds stale
# targets, one process at a time. Prints nothing and takes milliseconds if there is nothing to do.

root=${BASH_SOURCE[0]%/*}/..
preset=release
build=$root/build/$preset
# shellcheck source=cmake/progress.sh
source "$root/cmake/progress.sh"

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
give_up() { say "$*"; exit 2; }

# The time of a stamp is the start of the last build of a set of targets: .launch_stamp.programs for
# all programs and plugins, .launch_stamp.quickstart for runexp with the experiments of one family,
# and so on.
stamp_of() { echo "$build/.launch_stamp.$1"; }

# is_stale SET FILE…: whether the set may be out of date: a file is missing, or any source,
# including folders, is newer than the last build of the set or of all programs.
is_stale() {
  local set=$1 file newer stamp
  shift
  for file; do [[ -e $file ]] || return 0; done
  for stamp in "$(stamp_of programs)" "$(stamp_of "$set")"; do
    [[ -e $stamp ]] || continue
    mpi_is_new "$stamp" && continue
    newer=$(find "$root"/{CMakeLists.txt,CMakePresets.json,cmake,core,layers,inputs,tasks} \
                 "$root"/{plugins,experiments} -newer "$stamp" -print -quit) || continue
    [[ -z $newer ]] && return 1
  done
  return 0
}

under_mpirun() {
  [[ -n ${OMPI_COMM_WORLD_RANK-}${PMIX_RANK-}${PMI_RANK-}${MPI_LOCALRANKID-} ]] ||
    [[ -n ${SLURM_STEP_ID-} && ${SLURM_STEP_NUM_TASKS:-1} -gt 1 ]]
}

# mpi_is_new STAMP: whether MPI was installed after that build, which did not use it.
mpi_is_new() {
  [[ -e $build/lib/tessera/transports/mpi.so ]] && return 1
  local compiler
  compiler=$(command -v mpicc) && [[ -n $(find "$compiler" -cnewer "$1" 2>/dev/null) ]]
}

# Installs the packages of cmake/packages.txt of the given kinds ("build", "test"). Sets `installed`
# to their names, if any was missing.
install_packages() {
  command -v dpkg-query >/dev/null || return 0  # Not Debian: CMake will report what is missing.
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
  # Before the progress line, which would hide the password prompt.
  ((${#as_root[@]} == 0)) || sudo -v || give_up "sudo refused; as root: apt-get install ${missing[*]}"
  say "installing ${missing[*]}"
  installed=${missing[*]}
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600)
  { with_progress 'reading package lists' "$build/install.log" "${as_root[@]}" "${apt[@]}" update &&
    with_progress 'installing' "$build/install.log" \
      "${as_root[@]}" "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } 9>&- || {
    tail -n 5 "$build/install.log" >&2
    give_up "installing failed (all of it: $build/install.log); by hand: apt-get install ${missing[*]}"
  }
}

# The number of parallel compilers, limited by processors and memory (1.5 GB each).
compile_jobs() {
  local processors memory_kb=0
  processors=$(nproc)
  [[ -r /proc/meminfo ]] && memory_kb=$(awk '/^MemAvailable/ {print $2}' /proc/meminfo)
  local by_memory=$((memory_kb / 1500000))
  ((memory_kb == 0 || by_memory > processors)) && by_memory=$processors
  echo $((by_memory > 0 ? by_memory : 1))
}

# run_logged WHAT LOG COMMAND…: runs the command with progress; shows the errors in the log if it
# fails.
run_logged() {
  with_progress "$@" || { grep -E -A3 'error|FAILED|CMake Error' "$2" | head -n 40 >&2; return 1; }
}

# first_build TARGET…: announces the cost of the first build of a folder. Processor seconds were
# measured on a machine of 2023; docs/performance.md has them.
first_build() {
  local seconds=700
  [[ " $* " == *' programs '* ]] && seconds=450
  [[ " $* " == *' experiment_'* || $* == flat_tokens || $* == runexp ]] && seconds=350
  say "first time here: compiles what is needed, about $(minutes $((seconds / $(compile_jobs))))"
}

# lacks_nvcc TARGET…: whether the target is gpu_check, which is configured only where nvcc is.
lacks_nvcc() { [[ $* == gpu_check ]] && ! grep -qs '^build gpu_check:' "$build/build.ninja"; }

# build_targets SET KINDS TARGET…: installs packages of these kinds and builds, while it holds the
# lock.
build_targets() {
  local set=$1 kinds=$2 begun stamp
  shift 2
  mkdir -p "$build"
  exec 9>"$build/.launch_lock"
  flock -n 9 || { say "waiting for another build to end"; flock 9; }
  local installed=
  # shellcheck disable=SC2086  # Several kinds are several words.
  install_packages $kinds
  stamp=$(stamp_of "$set")
  begun=$build/.launch_begun
  touch "$begun"  # Changes during the build are for the next build.
  if [[ ! -e $build/build.ninja || $root/CMakePresets.json -nt $build/build.ninja ]] ||
    [[ -n $installed ]] || mpi_is_new "$build/build.ninja" || lacks_nvcc "$@"; then
    [[ -e $build/build.ninja ]] || first_build "$@"
    run_logged configuring "$build/configure.log" cmake -S "$root" --preset "$preset" ||
      give_up "configuring failed (all of it: $build/configure.log)"
  fi
  ! lacks_nvcc "$@" ||
    give_up "this build has no CUDA device; it needs nvcc of CUDA 12.4 or newer (docs/cuda.md)"
  run_logged building "$build/build.log" ninja -C "$build" -j "$(compile_jobs)" "$@" ||
    give_up "building failed (all of it: $build/build.log)"
  mv "$begun" "$stamp"
  exec 9>&-  # Otherwise the program would hold the lock while it runs.
}

# family_of ARGUMENT…: the family of the experiment in these arguments of runexp, if any. Other
# families need not be built to run it.
family_of() {
  local family='' argument previous=''
  for argument; do
    [[ $previous == --exp ]] && argument=--exp=$argument
    case $argument in
      --exp=?*.?*) family=${argument#--exp=} family=${family%%.*} ;;
      --exp=* | --list | --list=* | --diff | --diff=*) return 0 ;;
    esac
    previous=$argument
  done
  [[ $family =~ ^[a-z0-9_]+$ ]] && compgen -G "$root/experiments/$family/*.cc" >/dev/null &&
    echo "$family"
  return 0
}

# The targets to build for one family. Existing plugins are kept up to date, because runexp loads
# all that it finds. `transports` is needed for several processes; ./runexp does not build under
# mpirun.
targets_of_family() {
  local plugin family=$1
  echo "runexp transports experiment_$family"
  for plugin in "$build"/lib/tessera/experiments/*.so; do
    [[ -e $plugin ]] || continue  # No plugin exists yet.
    plugin=${plugin##*/} plugin=${plugin%.so}
    [[ $plugin != "$family" ]] && compgen -G "$root/experiments/$plugin/*.cc" >/dev/null &&
      echo "experiment_$plugin"
  done
}

# uses_device_plugin ARGUMENT…: whether runexp will load a device plugin.
uses_device_plugin() {
  local argument previous=''
  for argument; do
    [[ $previous =~ ^--(device|against|kernels_of)$ ]] && argument=$previous=$argument
    argument=${argument/#--against=device:/--device=}
    argument=${argument/#--kernels_of=/--device=}
    [[ $argument == --device=?* && ! $argument =~ =(cpu|reference)$ ]] && return 0
    previous=$argument
  done
  return 1
}

# launch PROGRAM ARGUMENT…: builds the program if needed, then replaces this process with it (exec).
launch() {
  local program=$1 set=programs family='' targets=(programs) needed
  shift
  needed=("$build/bin/$program")
  if [[ ${1-} == --completion* ]]; then  # A shell that starts must not wait for a build.
    [[ -x ${needed[0]} ]] || give_up "nothing is built that could complete; run ./$program --help once"
    exec "${needed[0]}" "$@"
  fi
  if [[ $program == runexp && ! ${1-} =~ ^(new$|--(report|compare|watch)(=|$)) ]]; then
    family=$(family_of "$@")
  else
    set=$program targets=("$program")  # These need no experiments.
  fi
  if [[ -n $family ]]; then
    set=$family
    needed+=("$build/lib/tessera/experiments/$family.so")
    ! uses_device_plugin "$@" || set=$family.devices
  fi
  if is_stale "$set" "${needed[@]}"; then
    under_mpirun && give_up "not built, or older than its sources; run ./$program once without mpirun"
    # shellcheck disable=SC2207  # Names of targets have no spaces.
    [[ -z $family ]] || targets=($(targets_of_family "$family"))
    [[ $set != *.devices ]] || targets+=(devices)
    build_targets "$set" build "${targets[@]}"
  fi
  exec "$build/bin/$program" "$@"
}
