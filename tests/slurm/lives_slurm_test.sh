# SPDX-License-Identifier: Apache-2.0
#
# Lives of a job that bring it no further: one that is warned before its ranks run comes back, a chain that makes no step stops.
# timeout: 900
# Fault, stops: jobs that end without a step -> not requeued, with a message
source "$TRIREME_SOURCE/tests/slurm/on_cluster.sh"

# Warned while its modules are loaded: it comes back and does all of it.
module() {
  echo "modules are being loaded"
  # shellcheck disable=SC2154  # of jobs/launch.sh
  [[ ${SLURM_RESTART_COUNT:-0} != 0 ]] || until [[ $signaled == yes ]]; do sleep 0.2; done  # until the script has had the signal
}
export -f module
submit MODULES=any "SETTINGS=train.steps=6" cpu.sbatch
until_true 60 "loading modules" eval 'grep -q "modules are being loaded" "$id.out" 2>/dev/null'
scancel -b --signal=USR1 "$id"
ends 0
said 'asked to save before the ranks had begun: back into the queue'
rows runs/usual 'assert [r["step"] for r in rows] == [1, 2, 3, 4, 5, 6] and all(r["restart_count"] == 1 for r in rows)'

# A program that exits with 75 without a new save must not be requeued for ever. The directory of checkpoints comes
# from the run file, from a setting, or from CHECKPOINTS.
cat >idle <<'SH2'
#!/bin/sh
[ "$1" != train ] || exit 75
exec "$PROGRAM" "$@"
SH2
chmod +x idle
submit "PROGRAM=$TRIREME" "TRIREME=$work/idle" cpu.sbatch
ends 75
said 'error: no step since the last life: the newest checkpoint is still runs/usual/checkpoints/step-00000006'
[[ $(of Restarts) == 0 ]] || fail "it was put back $(of Restarts) times"
mkdir -p elsewhere
cp -r runs/usual/checkpoints elsewhere/
submit "PROGRAM=$TRIREME" "TRIREME=$work/idle" "SETTINGS=run.output=elsewhere" cpu.sbatch
ends 75
said 'error: no step since the last life: the newest checkpoint is still elsewhere/checkpoints/step-00000006'
