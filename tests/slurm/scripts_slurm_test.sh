# SPDX-License-Identifier: Apache-2.0
#
# Every script of jobs/ as users submit them: sweeps, GPUs that this build cannot use, wrong surroundings, and plan.sh.
# timeout: 1800
source "$TRIREME_SOURCE/tests/slurm/on_cluster.sh"

# A sweep: a task per line, comments skipped, each in a separate directory.
cat >sweep.txt <<'TEXT'
# learning rates
optimizer.lr=1e-3
optimizer.lr=1e-2 run.seed=7

optimizer.lr=3e-3
TEXT
id=$(env "SETTINGS=train.steps=12" sbatch --parsable --array=0-2 --nodes=1 --ntasks-per-node=2 --cpus-per-task=1 --time=10 \
  --output=%A_%a.out "$TRIREME_SOURCE/jobs/sweep.sbatch")
until_true 300 "done" eval '[[ -z $(squeue -h -j $id 2>/dev/null) ]]'
python3 - <<'PYTHON' || fail "the sweep's results"
import json
lrs = [[json.loads(line)["lr"] for line in open(f"runs/sweep/{task}/metrics.jsonl")] for task in range(3)]
assert lrs == [[1e-3] * 12, [1e-2] * 12, [3e-3] * 12], lrs
assert "seed = 7 " in open("runs/sweep/1/run.toml").read()
PYTHON
grep -qE "^job      Slurm [0-9]+ \(${id}_2\) on n[12]$" "${id}_2.out" || fail "the banner of a task of an array"
# One task of an array that is asked to save, the last one, whose SLURM_JOB_ID is the array's: it alone goes back. Cancelled, it alone
# stays out; the others train on, or stay done.
cat >lives.txt <<'TEXT'
train.steps=6
train.steps=2000000
train.steps=2000000
TEXT
id=$(env $slowly LIST=lives.txt OUTPUT=runs/lives "SETTINGS=checkpoint.every=1000000" sbatch --parsable --array=0-2 --nodes=1 --ntasks-per-node=1 \
  --cpus-per-task=1 --time=10 --output=lives_%a.out "$TRIREME_SOURCE/jobs/sweep.sbatch")
array=$id
of_task() { scontrol --oneliner show job "${array}_$1" | tr ' ' '\n' | sed -n "s/^$2=//p" | head -n 1; }
touch "$id.out"
until_true 180 "training" eval 'trains_beyond runs/lives/1 5 && trains_beyond runs/lives/2 5 && [[ $(of_task 0 JobState) == COMPLETED ]]'
grep -q -- "scancel --signal=USR1 ${array}_2" lives_2.out || fail "the command that stops a task"
scancel --batch --signal=USR1 "${array}_2"
until_true 120 "requeued" eval '[[ $(of_task 2 Restarts) == 1 ]]'
sleep 3
[[ "$(of_task 0 JobState) $(of_task 0 Restarts)" == "COMPLETED 0" ]] || fail "task 0 is $(of_task 0 JobState)"
[[ "$(of_task 1 JobState) $(of_task 1 Restarts)" == "RUNNING 0" ]] || fail "task 1 is $(of_task 1 JobState)"
sleep 4
scontrol update jobid="${array}_2" StartTime=now
until_true 180 "training again" eval '[[ $(of_task 2 JobState) == RUNNING ]] && grep -q "restart 1$" lives_2.out'
until_true 180 "training again" trains_beyond runs/lives/2 15
scancel "${array}_2"
until_true 120 "over" eval '[[ $(of_task 2 JobState) == CANCELLED ]]'
sleep 3
[[ "$(of_task 2 JobState) $(of_task 1 JobState) $(of_task 1 Restarts)" == "CANCELLED RUNNING 0" ]] || fail "a cancelled task came back, or another one was ended"
grep -q "job ${array}_2: cancelled: it stays out of the queue" lives_2.out || fail "the cancelled task's message"
scancel "$array"
until_true 120 "over" eval '[[ -z $(squeue -h -j $array -t RUNNING,COMPLETING 2>/dev/null) ]]'

submit sweep.sbatch --array=9 --nodes=1
until_true 180 "over" is_over
[[ $(of ExitCode) == 2:0 ]] || fail "a task without a line: $(of ExitCode)"

# GPU scripts are accepted by Slurm, and rejected without a GPU or by a build without CUDA, which prints the reason and leaves no
# files behind. (The cluster's GPUs are simulated.)
submit one_node.sbatch --nodes=1 --gpus-per-node=2
ends 5
said '^trireme: error: device.type = "cuda", but (this trireme was built without CUDA|CUDA finds no GPU)'
submit many_nodes.sbatch --gpus-per-node=2
ends 5
said '^trireme: error: device.type = "cuda", but (this trireme was built without CUDA|CUDA finds no GPU)'
submit DEVICE=cuda CHECKPOINTS=runs/gpu requeue.sbatch --gpus-per-node=2
ends 5
[[ ! -e runs/usual && ! -e runs/gpu ]] || fail "a refused job wrote"

# Fewer cores than the ranks need: a warning with the numbers, not a failure.
submit "SETTINGS=run.output=runs/few train.steps=3 checkpoint.at_end=false device.threads=3" cpu.sbatch
ends 0
said 'warning .*n1: 2 ranks of 3 threads need 6 cores, the job has 2 there'
said '--cpus-per-task=3'

# srun without PMIx: refused.
submit MPI_PLUGIN=none "SETTINGS=run.output=runs/none" cpu.sbatch
ends 5
said '^trireme: error: srun started 4 tasks without PMIx support for Open MPI.*--mpi=pmix|srun started 4 tasks, but MPI sees 1 rank'
# Tasks that the mesh does not fit.
submit "SETTINGS=run.output=runs/mesh mesh.shard=3" cpu.sbatch
ends 2
said '^trireme: error: the run file does not fit 4 ranks:'
said '^  mesh'

# Mistakes around the program: one line, before any rank starts.
submit RUN=nowhere.toml cpu.sbatch; ends 2; said 'error: cannot read the run file nowhere.toml'
submit TRIREME=nowhere cpu.sbatch; ends 5; said 'error: there is no program nowhere'
submit MODULES=nowhere cpu.sbatch; ends 5; said 'error: MODULES is set|error: module load'

# Poor surroundings on the nodes.
mkdir -p runs/tmp
submit LANG=C LC_ALL=C "TMPDIR=$work/nowhere" "SETTINGS=run.output=runs/poor train.steps=4 checkpoint.at_end=false" cpu.sbatch
ends 0
cat >homeless <<SH
#!/bin/sh
unset HOME
exec $TRIREME "\$@" <&- 2>&1
SH
chmod +x homeless
submit "TRIREME=$work/homeless" "SETTINGS=run.output=runs/homeless train.steps=4 checkpoint.at_end=false" cpu.sbatch
ends 0
rows_of() { wc -l <"$1/metrics.jsonl"; }
(($(rows_of runs/poor) == 4 && $(rows_of runs/homeless) == 4)) || fail "poor surroundings"
touch blocked
submit "SETTINGS=run.output=blocked/run" cpu.sbatch
ends 8
said '^trireme: error: run.output blocked/run: cannot be created'

# From the login node: what a script would hold and move.
sed 's/^micro = 2/micro = 1/' run.toml >plan.toml
plan() { RUN=plan.toml "$TRIREME_SOURCE/jobs/plan.sh" "$@" >plan.out 2>&1; }
for script in one_node:4 many_nodes:16 cpu:4 requeue:4 sweep:2; do
  plan "$TRIREME_SOURCE/jobs/${script%:*}.sbatch" || { cat plan.out; fail "plan.sh ${script%:*}"; }
  grep -q " of .* ranks$" plan.out || fail "plan.sh ${script%:*} prints no ranks"
done
plan "$TRIREME_SOURCE/jobs/many_nodes.sbatch" --nodes=2 --ntasks-per-node=4 --show memory || fail "plan.sh with options"
grep -q "^plan: plan.toml on 2 nodes of 4 ranks$" plan.out || fail "plan.sh's options: $(cat plan.out)"
if plan nowhere.sbatch; then fail "plan.sh of no script"; fi

# The shipped scripts contain no personal paths.
! grep -nE '/home/|/work/|/root' "$TRIREME_SOURCE"/jobs/* || fail "a personal path"
