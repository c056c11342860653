#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A real Slurm cluster of two nodes (CLUSTER_NODES=3: of three) on this machine: munge, slurmctld and a slurmd per
# node, out of Debian's packages.
#
#   eval "$(tests/slurm/cluster.sh up)"   starts it; prints the variables that srun, sbatch and scontrol need
#   tests/slurm/cluster.sh down           ends it, its jobs, and what it wrote
#   tests/slurm/cluster.sh status         how it is
#   tests/slurm/cluster.sh lose n2        kills all processes of a node, its daemon included
#   tests/slurm/cluster.sh return n2      starts the daemon of a lost node
#
# All files are in $TRIREME_CLUSTER (default: /var/tmp/trireme-cluster-UID), with a separate munge key and ports: a site's Slurm and
# munge are never touched. Each node has its own name, /tmp and /dev/shm (PMIx and Open MPI keep files
# there under names that two nodes, or two clusters, would share): programs and files of a job must be outside /tmp. Nodes have 4
# CPUs and 2 simulated GPUs each, whatever this machine has; partitions: batch, and urgent, which preempts it. Exit codes: 0 done;
# 77 a requirement is missing (see standard error); 1 it did not start.
set -euo pipefail

readonly home=${TRIREME_CLUSTER:-/var/tmp/trireme-cluster-$(id -u)}
readonly conf=$home/slurm.conf
mapfile -t nodes < <(seq -f 'n%g' "${CLUSTER_NODES:-2}")
readonly nodes

say() { printf 'cluster: %s\n' "$*" >&2; }
cannot() { say "cannot start here: $*"; echo "skipped: $*" >&2; exit 77; }

check_machine() {
  ((EUID == 0)) || cannot "needs root (slurmd starts jobs for others, and nodes get a private /tmp)"
  local program
  for program in munged mungekey slurmctld slurmd srun sbatch unshare; do
    command -v "$program" >/dev/null || cannot "$program is not installed (jobs/setup.sh --slurm installs it)"
  done
  unshare -m -u sh -c 'mount --make-rprivate / && hostname n1' 2>/dev/null ||
    cannot "the kernel refuses namespaces (unshare -m -u): a container without CAP_SYS_ADMIN?"
}

# free_ports COUNT: unused ports, in case another cluster is up, outside the range of outgoing connections.
free_ports() {
  python3 - "$1" <<'PYTHON'
import pathlib, random, socket, sys
first_outgoing = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
held = []
while len(held) < int(sys.argv[1]):
    s = socket.socket()
    try:
        s.bind(("", random.randrange(10240, first_outgoing) if first_outgoing > 11000 else 0))
    except OSError:
        continue
    held.append(s)
print(*[s.getsockname()[1] for s in held])
PYTHON
}

write_configuration() {
  local host ctld port ports node
  host=$(hostname -s)
  read -r ctld ports < <(free_ports $((1 + ${#nodes[@]})))
  cat >"$conf" <<CONF
ClusterName=trireme
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$ctld
AuthType=auth/munge
# cred_expire: a requeued job waits as long before it starts again.
AuthInfo=socket=$home/munge.socket,cred_expire=4
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$home/state
SlurmdSpoolDir=$home/spool-%n
SlurmctldPidFile=$home/slurmctld.pid
SlurmdPidFile=$home/slurmd-%n.pid
SlurmctldLogFile=$home/slurmctld.log
SlurmdLogFile=$home/slurmd-%n.log
SlurmdParameters=config_overrides
MpiDefault=pmix
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=batch_sched_delay=1,sched_interval=5,bf_interval=2
ReturnToService=1
KillWait=10
OverTimeLimit=0
SlurmdTimeout=300
MessageTimeout=60
TCPTimeout=20
BatchStartTimeout=60
PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
CONF
  for node in "${nodes[@]}"; do
    read -r port ports <<<"$ports"
    echo "NodeName=$node NodeHostname=$host NodeAddr=127.0.0.1 Port=$port CPUs=4 RealMemory=4000 Gres=gpu:2"
  done >>"$conf"
  # Regular files as GPUs, so that a job can request some.
  for node in "${nodes[@]}"; do
    touch "$home/fake-$node-0" "$home/fake-$node-1"
    echo "NodeName=$node Name=gpu File=$home/fake-$node-[0-1]"
  done >"$home/gres.conf"
  echo "CgroupAutomount=no" >"$home/cgroup.conf"
}

# alive PIDFILE PROGRAM: whether the daemon that wrote it is running still.
alive() { [[ -s $1 && $(cat "/proc/$(cat "$1")/comm" 2>/dev/null) == "$2" ]]; }

up() {
  check_machine
  if alive "$home/slurmctld.pid" slurmctld; then say "is up already"; variables; return; fi
  down >/dev/null
  mkdir -p "$home/state"
  chmod 755 "$home"
  write_configuration
  trap 'say "did not start:"; tail -n 5 "$home"/*.log >&2; down' ERR
  mungekey --create --keyfile="$home/munge.key"
  munged --force --key-file="$home/munge.key" --socket="$home/munge.socket" --pid-file="$home/munged.pid" \
    --log-file="$home/munged.log" --seed-file="$home/munge.seed"
  SLURM_CONF=$conf slurmctld
  local node tries=0
  for node in "${nodes[@]}"; do start_node "$node"; done
  until [[ $(SLURM_CONF=$conf sinfo -h -p batch -o '%D %t') == "${#nodes[@]} idle" ]]; do
    ((++tries < 240)) || { say "the nodes do not answer"; false; }
    sleep 0.5
  done
  trap - ERR
  say "is up: nodes ${nodes[*]}, in $home"
  variables
}

start_node() {
  local node=$1
  mkdir -p "$home/tmp-$node"
  chmod 1777 "$home/tmp-$node"
  SLURM_CONF=$conf HOME_OF_CLUSTER=$home unshare -m -u sh -ec "
    mount --make-rprivate /
    hostname $node
    readlink /proc/self/ns/mnt >\"\$HOME_OF_CLUSTER/namespace-$node\"
    mount --bind \"\$HOME_OF_CLUSTER/tmp-$node\" /tmp
    mount -t tmpfs -o size=1g tmpfs /dev/shm
    exec slurmd -N $node"
}

variables() { echo "export SLURM_CONF=$conf TRIREME_CLUSTER=$home"; }

# processes_of_nodes [NODE]: everything that runs on a node (slurmd, its step daemons, their tasks) is in the node's mount
# namespace, and nothing else.
processes_of_nodes() {
  local namespaces files=("$home"/namespace-*)
  (($# == 0)) || files=("$home/namespace-$1")
  namespaces=$(cat "${files[@]}" 2>/dev/null) || return 0
  { find /proc/[0-9]*/ns/mnt -maxdepth 0 -printf '%l %p\n' 2>/dev/null || true; } | { grep -F "$namespaces" || true; } |
    sed -E 's#.* /proc/([0-9]+)/.*#\1#'
}

# ended PIDFILE PROGRAM SIGNAL: ends one daemon of ours and waits for it.
end_daemon() {
  alive "$1" "$2" || return 0
  local pid tries=0
  pid=$(cat "$1")
  kill "$3" "$pid" 2>/dev/null || true
  while [[ -d /proc/$pid ]]; do
    ((++tries < 40)) || { kill -KILL "$pid" 2>/dev/null || true; break; }
    sleep 0.25
  done
}

# lose [NODE]: without one, all nodes.
lose() {
  local pids tries=0
  # Stopped tasks react to SIGKILL only; a step daemon may be starting another in the meantime.
  while pids=$(processes_of_nodes "$@") && [[ -n $pids ]] && ((++tries < 40)); do
    # shellcheck disable=SC2086  # several of them
    kill -KILL $pids 2>/dev/null || true
    sleep 0.25
  done
  [[ -z $pids ]] || say "could not end these processes of the nodes: $(echo $pids)"
}

down() {
  [[ -d $home ]] || { say "is down already"; return; }
  end_daemon "$home/slurmctld.pid" slurmctld -KILL  # its state goes, too: it need not write it
  lose
  end_daemon "$home/munged.pid" munged -TERM
  rm -rf "$home" || true
  [[ ! -e $home ]] || { say "could not remove all of $home"; return 1; }
  say "is down"
}

case ${1:-} in
  up | down) "$1" ;;
  lose) lose "$2" ;;
  return) start_node "$2" ;;
  status) SLURM_CONF=$conf sinfo -N -l ;;
  *) sed -n '3,17s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
