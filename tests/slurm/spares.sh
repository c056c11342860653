# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Sourced after on_cluster.sh by tests of trireme supervise, on a cluster of three nodes: jobs of two nodes and a spare.

# shellcheck disable=SC2034  # used by on_cluster.sh
size=(--nodes=3 --no-kill --ntasks-per-node=2 --cpus-per-task=1 --time=10 --output=%j.out)

# train_with_spare NAME [VARIABLE=value...] [-- SETTING...]: a job of 60 steps that saves every tenth.
train_with_spare() {
  local name=$1 variables=()
  shift
  while (($#)) && [[ $1 != -- ]]; do variables+=("$1"); shift; done
  submit SPARES=1 "SETTINGS=run.output=runs/$name train.steps=60 checkpoint.every=10 ${*:2}" "${variables[@]}" cpu.sbatch
}

# Processes of the job's program with NAME=VALUE in their environment.
processes_with() {
  local file
  for file in /proc/[0-9]*/environ; do
    ! cat "$file" 2>/dev/null | tr '\0' '\n' | grep -qxF "$1" || { file=${file#/proc/}; echo "${file%/environ}"; }
  done
}
is_rank() { [[ $(tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null) == "$TRIREME train "* ]]; }
rank_on() {
  local pid
  for pid in $(processes_with "SLURMD_NODENAME=$1"); do ! is_rank "$pid" || { echo "$pid"; return; }; done
}

no_orphans() {
  until_true 60 "free of ranks" eval '! pgrep -f "^$TRIREME (train|doctor|supervise)" >/dev/null'
  ! compgen -G "runs/*/.supervise*" >/dev/null || fail "the supervisor left files behind"
}

# same_weights A B: the last checkpoints of two runs.
same_weights() {
  local run
  for run in "$@"; do
    "$TRIREME" export "runs/$run/checkpoints/step-00000060" -o "weights-$run" --dtype fp32 >/dev/null
  done
  cmp "weights-$1/model.safetensors" "weights-$2/model.safetensors" || fail "other weights: $*"
}
