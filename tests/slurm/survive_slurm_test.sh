# SPDX-License-Identifier: Apache-2.0
#
# Restarts within an allocation of two nodes and a spare (trireme supervise): a rank is killed, then a node is lost. The
# run ends in the same job with the weights of an undisturbed one, bit for bit.
# timeout: 600
# Fault, hangs: with spares: a rank is killed, a node is lost, a rank stops -> the run restarts in its job on healthy
#   nodes, without the reported one; the same weights bit for bit
export CLUSTER_NODES=3
source "$TRIREME_SOURCE/tests/slurm/on_cluster.sh"
source "$TRIREME_SOURCE/tests/slurm/spares.sh"

train_with_spare usual
ends 0
said '6 ranks on 3 nodes \(n\[1-3\]\), nodes of them spare: 1'
said '^mesh     1x4x1 .* on 2 nodes, mpi$'

# The node of the first failure is replaced by the spare. It passes its checks, so it is used again when another is lost.
train_with_spare disturbed $slowly -- comm.timeout_seconds=5
until_true 120 "saved" trains_beyond runs/disturbed 12
kill -KILL "$(rank_on n2)"
until_true 120 "training again" eval 'grep -q "restart 1: step" "$id.out"'
until_true 120 "saved again" trains_beyond runs/disturbed 25
"$TRIREME_SOURCE/tests/slurm/cluster.sh" lose n3
until_true 120 "training on" eval 'grep -q "restart 2: step" "$id.out"'
"$TRIREME_SOURCE/tests/slurm/cluster.sh" return n3  # Slurm waits for it before the job ends
ends 0
said 'the ranks ended with exit code 137 after step [0-9]+: srun: error: n2: task [0-9]: Killed'
said 'restart 1 on n1, n3'
said 'restart 2 on n1, n2'
said 'node n3 is not used: does not answer'
rows runs/disturbed "$same_as_usual"'
assert all(r["restart_count"] == 0 for r in rows)
'
same_weights usual disturbed
no_orphans
grep -h 'restart [0-9]: step' "$id.out"
