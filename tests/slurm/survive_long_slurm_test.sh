# SPDX-License-Identifier: Apache-2.0
#
# The same as survive_slurm_test.sh for other failures: a hang, fewer nodes, a node that returns, stops and ends of the
# supervisor while it restarts.
# timeout: 1200
# labels: long
# Fault, hangs: with spares: nodes are lost and none is left -> fewer ranks if mesh and batch fit; else the exit code
#   of the failure
# Fault, hangs: a signal while a run restarts; the supervisor is killed -> nothing is saved, 128 + signal; the
#   launcher and its ranks end
export CLUSTER_NODES=3
source "$TRIREME_SOURCE/tests/slurm/on_cluster.sh"
source "$TRIREME_SOURCE/tests/slurm/spares.sh"
cluster() { "$TRIREME_SOURCE/tests/slurm/cluster.sh" "$@"; }

train_with_spare usual
ends 0

# A stopped rank: the others report its node after the deadline.
train_with_spare hung $slowly -- comm.timeout_seconds=8
until_true 120 "saved" trains_beyond runs/hung 12
kill -STOP "$(rank_on n2)"
ends 0
said 'Wrote nothing: rank [23] on n2'
said 'restart 1 on n1, n3'
rows runs/hung "$same_as_usual"
same_weights usual hung

# Two nodes are lost: the run continues with fewer ranks, and on the nodes that return after the next failure.
train_with_spare fewer "$slowly,$(sed s/.*=// <<<"$slowly")" -- comm.timeout_seconds=8
until_true 120 "saved" trains_beyond runs/fewer 12
cluster lose n3
cluster lose n2
until_true 120 "training again" eval 'grep -q "restart 1: step" "$id.out"'
said 'continuing with 2 ranks in the place of 4'
cluster return n2
cluster return n3
until_true 120 "saved again" trains_beyond runs/fewer 25
kill -KILL "$(rank_on n1)"
ends 0
said 'restart 2 on n[12], n[23]'
rows runs/fewer '
assert [r["step"] for r in rows] == list(range(1, 61))
# Within 1e-6 over the 20 steps of the numerics contract; differences grow in later ones.
for a, b in zip(rows, usual):
    assert abs(a["loss"] / b["loss"] - 1) < (1e-6 if a["step"] <= 30 else 1e-4), (a["step"], a["loss"], b["loss"])
'
no_orphans

# scancel while the run restarts: nothing is started any more.
train_with_spare cancelled $slowly
until_true 120 "saved" trains_beyond runs/cancelled 12
kill -KILL "$(rank_on n2)"
until_true 60 "restarting" eval 'grep -q "the ranks ended with exit code 137" "$id.out"'
scancel "$id"
until_true 60 "over" is_over
no_orphans

# A stop signal while it restarts ends with the signal's code, and the job goes back into the queue.
train_with_spare asked $slowly REQUEUE=no
until_true 120 "saved" trains_beyond runs/asked 12
kill -KILL "$(rank_on n2)"
until_true 60 "restarting" eval 'grep -q "the ranks ended with exit code 137" "$id.out"'
scancel -b --signal=USR1 "$id"
until_true 60 "over" is_over
[[ $(of ExitCode) =~ ^(138|75):0$ ]] || fail "exit code $(of ExitCode)"  # 75: the ranks had started, and saved
no_orphans

# The supervisor is killed: the job ends, its ranks with it.
train_with_spare killed $slowly
until_true 120 "saved" trains_beyond runs/killed 12
pkill -KILL -f "^$TRIREME supervise .*runs/killed"
ends 137
rm -r runs/killed/.supervise*
no_orphans
