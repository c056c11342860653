# SPDX-License-Identifier: Apache-2.0
#
# Ranks and nodes that die under jobs/requeue.sbatch: the job is requeued and ends with the losses of an unbroken run, bit for
# bit; one without a new checkpoint is not requeued.
# timeout: 1800
source "$TRIREME_SOURCE/tests/slurm/on_cluster.sh"

submit "SETTINGS=checkpoint.at_end=false" cpu.sbatch
ends 0

# chain NAME: submits the chain, and waits until it has saved.
chain() {
  submit $slowly "CHECKPOINTS=runs/$1/checkpoints" SAVE_EVERY=20 "SETTINGS=run.output=runs/$1" requeue.sbatch
  until_true 180 "saved" holds_checkpoint "runs/$1/checkpoints"
  until_true 180 "training on" trains_beyond "runs/$1" 25
}

# All ranks of the step are killed.
chain killed
scancel --signal=KILL "$id.0"
ends 0
said 'ended with 137 after step-000000[0-9]+ was saved: back into the queue'
rows runs/killed "$same_as_usual"'
assert rows[0]["restart_count"] == 0 and rows[-1]["restart_count"] == 1
'

# A node goes down under the job: Slurm puts it back, and it begins again when the node is up.
chain downed
scontrol update nodename=n2 state=down reason="a test"
until_true 180 "pending" eval '[[ $(of JobState) == PENDING ]]'
scontrol update nodename=n2 state=resume
ends 0
rows runs/downed "$same_as_usual"'
assert rows[-1]["restart_count"] >= 1
'

# Nothing was saved: the same would happen again.
submit $slowly CHECKPOINTS=runs/barren/checkpoints SAVE_EVERY=1000 "SETTINGS=run.output=runs/barren" requeue.sbatch
until_true 180 "training" trains_beyond runs/barren 5
scancel --signal=KILL "$id.0"
until_true 180 "over" is_over
said 'ended with 137, and no new checkpoint was saved'
[[ $(of ExitCode) == 137:0 ]] || fail "exit code $(of ExitCode)"

# A stopped rank: the job ends after the deadline of 12 s, long before its time limit; the message names the rank, its node, the operation, the block and the step,
# and the other ranks leave behind what they were in.
submit TRIREME_FAULT=step.begin:stop:3:7 "SETTINGS=run.output=runs/hung comm.timeout_seconds=12 checkpoint.at_end=false" cpu.sbatch
gives_up 7 180
said '^\[rank [0-2] n[12]\] error: Hang: [a-z_]+ #[0-9]+ \(.*\) on [a-z]+/[a-z]+ for "[a-z_]+ .*, step 8" still waits for .*Wrote nothing: rank 3 on n2\.'
for rank in 0 1 2; do
  python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); assert d["node"] == sys.argv[2] and any(o["finished_seconds_ago"] is None for o in d["operations"]), d' \
    runs/hung/hang-rank$rank.json n$((rank / 2 + 1)) || fail "the report of rank $rank"
done
[[ ! -e runs/hung/hang-rank3.json ]] || fail "the stopped rank wrote a report"
until_true 60 "free of the stopped rank" eval '! pgrep -f "$TRIREME train.*runs/hung" >/dev/null'

# A slow rank fails nothing, and is named with its node.
submit TRIREME_FAULT=step.begin:slow:2 "SETTINGS=run.output=runs/slow train.steps=70 checkpoint.at_end=false" cpu.sbatch
ends 0
said 'warning rank 2 on n2 is a straggler: its own part of a step takes '
rows runs/slow 'assert [r["loss"] for r in rows] == [r["loss"] for r in usual[:70]]'
