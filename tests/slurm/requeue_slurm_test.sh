# SPDX-License-Identifier: Apache-2.0
#
# Jobs that are warned, killed or preempted save, go back into the queue, and end with the losses of an unbroken run, bit for bit.
# timeout: 2400
source "$TRIREME_SOURCE/tests/slurm/on_cluster.sh"

# The unbroken run: two nodes of two ranks, over MPI.
submit cpu.sbatch
ends 0
said '^job      Slurm [0-9]+ on n\[1-2\]$'
said '^mesh     1x4x1 .* on 2 nodes, mpi$'
said '^step=120 loss='
rows runs/usual 'assert len(rows) == 120 and rows[-1]["loss"] < rows[0]["loss"] - 2; assert all(r["restart_count"] == 0 for r in rows)'

# 500 ms a step: no life of a minute is long enough for a run. slurmctld looks at time limits every 30 s, so that the signal comes
# 20 to 50 s after the start; and a life has 20 s to begin.
very_slowly=TRIREME_FAULT=$(printf 'step.begin:slow,%.0s' {1..9})step.begin:slow

# Slurm's own signal before the time limit, life after life, until the run is done.
submit $very_slowly "SETTINGS=run.output=runs/limit" cpu.sbatch --time=1 --signal=B:USR1@40
ends 0 600
said 'job [0-9]+: USR1 at .* asking the ranks to save'
said '^stopped by a signal after step [0-9]+'
said 'saved: back into the queue'
said '^job      Slurm [0-9]+ on n\[1-2\], restart 1$'
rows runs/limit "$same_as_usual"'
counts = [r["restart_count"] for r in rows]
assert counts == sorted(counts) and counts[0] == 0 and counts[-1] >= 1, counts
'

# Without a signal the run itself stops before the limit: it knows when the job ends.
submit $very_slowly "SETTINGS=run.output=runs/alone train.stop_before_limit_seconds=30" cpu.sbatch --time=1 --signal=B:URG@1
ends 0 600
said "^stopped before the job's time limit after step [0-9]+"
said '^job      Slurm [0-9]+ on n\[1-2\], restart 1$'
rows runs/alone "$same_as_usual"

# A user's signal, and a job that is not to go back: exit code 75, nothing lost.
submit $slowly REQUEUE=no "SETTINGS=run.output=runs/asked" cpu.sbatch
until_true 180 "training" trains_beyond runs/asked 20
scancel -b --signal=USR1 "$id"
ends 75
holds_checkpoint runs/asked/checkpoints || fail "nothing was saved"

# Preemption: Slurm sends SIGTERM and waits; the job comes back when the urgent one is done.
submit $slowly "SETTINGS=run.output=runs/preempted" cpu.sbatch
until_true 180 "training" trains_beyond runs/preempted 20
preempted=$id
id=$(sbatch --parsable --nodes=2 --ntasks-per-node=1 --exclusive --partition=urgent --time=1 --output=%j.out --wrap 'srun sleep 3')
ends 0
id=$preempted
ends 0
said '^stopped by a signal after step '
rows runs/preempted "$same_as_usual"'
assert rows[-1]["restart_count"] >= 1
'

# A cancelled job still saves a checkpoint, and sbatch of the same script resumes from it.
submit $slowly "SETTINGS=run.output=runs/cancelled" cpu.sbatch
until_true 180 "training" trains_beyond runs/cancelled 20
scancel "$id"
until_true 180 "over" is_over
said 'cancelled: it stays out of the queue'
[[ $(of JobState) == CANCELLED ]] || fail "a cancelled job came back"
until_true 60 "saved" holds_checkpoint runs/cancelled/checkpoints
submit "SETTINGS=run.output=runs/cancelled" cpu.sbatch
ends 0
rows runs/cancelled "$same_as_usual"
