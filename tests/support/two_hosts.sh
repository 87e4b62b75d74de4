#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Simulates two hosts, left and right, on one machine: two network namespaces connected by a veth
# pair.
#   two_hosts.sh [--slots=N] [--rate=RATE] COMMAND…
# runs COMMAND on left, where `mpirun` has N slots (default 1) on each host. RATE (1gbit, in tc's
# format) limits the link in each direction. Exits with COMMAND's code, or with 77 and the reason on
# stderr if namespaces cannot be created. Everything is removed at exit.
set -uo pipefail

slots=1
rate=
while [[ ${1-} == --* ]]; do
  case $1 in
    --slots=?*) slots=${1#*=} ;;
    --rate=?*) rate=${1#*=} ;;
    *) echo "two_hosts.sh: no option $1" >&2; exit 2 ;;
  esac
  shift
done

tag=tessera$$
folder=$(mktemp -d)

# Also removes those of earlier runs that were killed.
clean_up() {
  local name
  trap '' INT TERM  # A second signal must not interrupt the cleanup.
  while read -r name _; do
    [[ $name =~ ^tessera([0-9]+)-(left|right)$ ]] || continue
    if [[ ${BASH_REMATCH[1]} != "$$" ]] && kill -0 "${BASH_REMATCH[1]}" 2>/dev/null; then continue; fi
    ip netns pids "$name" 2>/dev/null | xargs -r kill -KILL 2>/dev/null
    ip netns delete "$name" 2>/dev/null
  done < <(ip netns list 2>/dev/null)
  rm -rf "$folder"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

skip() { echo "two_hosts.sh: $*" >&2; exit 77; }

command -v ip >/dev/null || skip "ip (iproute2) is not installed"
((EUID == 0)) || skip "network namespaces need root"
for host in left right; do
  ip netns add "$tag-$host" 2>"$folder/why" || skip "no network namespaces here: $(head -n 1 "$folder/why")"
  ip -n "$tag-$host" link set lo up
done
ip -n "$tag-left" link add cable type veth peer name cable netns "$tag-right" 2>"$folder/why" ||
  skip "no virtual cables here: $(head -n 1 "$folder/why")"
number=0
for host in left right; do
  ((++number))
  ip -n "$tag-$host" address add "10.213.0.$number/24" dev cable
  ip -n "$tag-$host" link set cable up
  if [[ -n $rate ]]; then
    tc -n "$tag-$host" qdisc add dev cable root tbf rate "$rate" burst 128kb latency 100ms \
      2>"$folder/why" || skip "the cable's rate cannot be limited: $(head -n 1 "$folder/why")"
  fi
done
unshare --uts true 2>/dev/null || skip "hosts cannot have names of their own here (unshare --uts)"

printf '10.213.0.1 slots=%d\n10.213.0.2 slots=%d\n' "$slots" "$slots" >"$folder/hosts"
# mpirun uses this instead of ssh. The first argument is the address, the rest is the command.
cat >"$folder/agent" <<END
#!/bin/sh
address=\$1
shift
case \$address in
  10.213.0.1) host=left ;;
  10.213.0.2) host=right ;;
esac
exec ip netns exec "$tag-\$host" unshare --uts sh -c "hostname \$host; \$*"
END
chmod +x "$folder/agent"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_plm_rsh_agent=$folder/agent OMPI_MCA_orte_default_hostfile=$folder/hosts
export OMPI_MCA_oob_tcp_if_include=cable OMPI_MCA_btl_tcp_if_include=cable
exec 3<&0  # Otherwise the shell gives background commands no standard input.
# shellcheck disable=SC2016  # The inner shell's arguments.
ip netns exec "$tag-left" unshare --uts sh -c 'hostname left; exec "$@"' sh "$@" <&3 3<&- &
child=$!
wait "$child"
code=$?
exit "$code"
