#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A Slurm cluster of two nodes, left and right, on one machine (two_hosts.sh makes the hosts):
#   slurm_cluster.sh COMMAND…
# runs COMMAND on left, where srun, sbatch and the other clients use this cluster. $ON_HOST is a
# script: `$ON_HOST right COMMAND…` runs a shell command on a host. Exits with COMMAND's code, with
# 77 and the reason on stderr if a cluster is not possible on this machine, or with 1 if it does not
# start. Configuration, keys, logs and state are in a temporary directory ($CLUSTER), which is
# removed at exit. The system is not changed.
set -uo pipefail

skip() { echo "slurm_cluster.sh: $*" >&2; exit 77; }

here=$(dirname "$(readlink -f "$0")")
if [[ -z ${CLUSTER-} ]]; then
  for program in munged slurmctld slurmd srun sbatch scontrol; do
    PATH=$PATH:/usr/sbin command -v "$program" >/dev/null ||
      skip "$program is not installed (Debian: slurm-wlm, munge)"
  done
  # Paths of sockets in it have at most 107 characters.
  CLUSTER=$(mktemp -d /tmp/slurm.XXXXXX) || skip "no temporary directory can be made"
  export CLUSTER
  chmod 755 "$CLUSTER"
  trap 'rm -rf "$CLUSTER"' EXIT
  trap 'trap "" TERM INT; kill -TERM "$child" 2>/dev/null; wait "$child"; exit 143' TERM INT
  # Enough slots for mpirun.
  exec 3<&0
  "$here/two_hosts.sh" "$0" "$@" <&3 &
  child=$!
  wait "$child"
  exit "$?"
fi

export PATH=$PATH:/usr/sbin
agent=$OMPI_MCA_plm_rsh_agent
cat >"$CLUSTER/on" <<END
#!/bin/sh
# Runs a shell command on a host of this cluster.
host=\$1
shift
case \$host in
  left) address=10.213.0.1 ;;
  right) address=10.213.0.2 ;;
  *) echo "no host \$host" >&2; exit 2 ;;
esac
export SLURM_CONF=$CLUSTER/slurm.conf PATH=\$PATH:/usr/sbin ON_HOST=$CLUSTER/on CLUSTER=$CLUSTER
export OMPI_MCA_oob_tcp_if_include=cable OMPI_MCA_btl_tcp_if_include=cable
exec "$agent" "\$address" "\$*"
END
chmod +x "$CLUSTER/on"
export ON_HOST=$CLUSTER/on SLURM_CONF=$CLUSTER/slurm.conf

mkdir "$CLUSTER"/{state,left,right}
# proctrack/linuxproc and task/none need no cgroups, but slurmd loads a cgroup plugin anyway, and
# that of cgroup v2 needs systemd. cred_expire is also the delay before a requeued job starts.
echo 'CgroupPlugin=cgroup/v1' >"$CLUSTER/cgroup.conf"
cat >"$SLURM_CONF" <<END
ClusterName=tessera
SlurmctldHost=left(10.213.0.1)
SlurmUser=root
AuthInfo=socket=$CLUSTER/munge.socket,cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2
SlurmdParameters=config_overrides
StateSaveLocation=$CLUSTER/state
SlurmdSpoolDir=$CLUSTER/%n
TmpFS=$CLUSTER/%n
SlurmctldPidFile=$CLUSTER/slurmctld.pid
SlurmdPidFile=$CLUSTER/%n.pid
SlurmctldLogFile=$CLUSTER/slurmctld.log
SlurmdLogFile=$CLUSTER/%n.log
ReturnToService=2
JobRequeue=1
KillWait=20
SlurmdTimeout=${SLURMD_TIMEOUT:-300}
NodeName=left NodeAddr=10.213.0.1 CPUs=${NODE_CPUS:-2}
NodeName=right NodeAddr=10.213.0.2 CPUs=${NODE_CPUS:-2}
PartitionName=all Nodes=left,right Default=YES MaxTime=INFINITE State=UP
END

[[ $(srun --mpi=list 2>&1) == *pmix* ]] ||
  skip "srun has no --mpi=pmix (Debian: slurm-wlm-basic-plugins)"

fail_to_start() {
  echo "slurm_cluster.sh: $1; the ends of the logs:" >&2
  tail -n 5 "$CLUSTER"/*.log >&2
  exit 1
}

(umask 077 && head -c 128 /dev/urandom >"$CLUSTER/munge.key")
munged --foreground --force --origin=10.213.0.1 --key-file="$CLUSTER/munge.key" \
  --socket="$CLUSTER/munge.socket" --pid-file="$CLUSTER/munged.pid" \
  --log-file="$CLUSTER/munged.log" --seed-file="$CLUSTER/munge.seed" >"$CLUSTER/munged.out" 2>&1 &
for ((i = 0; i < 100; ++i)); do [[ -S $CLUSTER/munge.socket ]] && break; sleep 0.05; done
slurmctld -D -i >"$CLUSTER/slurmctld.out" 2>&1 &
for host in left right; do "$ON_HOST" "$host" slurmd -D -s >"$CLUSTER/$host.out" 2>&1 & done
for ((i = 0; i < 200; ++i)); do
  [[ $(sinfo --noheader --states=idle --format=%D 2>/dev/null) == 2 ]] && break
  sleep 0.1
done
((i < 200)) || fail_to_start "the nodes did not come up"
"$@"
code=$?
scancel --quiet --user="$(id -un)" 2>/dev/null
exit "$code"
