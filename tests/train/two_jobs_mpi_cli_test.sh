# SPDX-License-Identifier: Apache-2.0
#
# Two jobs with one directory on a file system without flock (tests/support/system_calls): the second is rejected because of the
# first one's lock file, and a killed job's lock is no obstacle.
# timeout: 300
# processors: 2
source "$TRIREME_SOURCE/tests/cli/small_run.sh"
source "$TRIREME_SOURCE/tests/support/processes.sh"

sed -e 's/^at_end = .*/at_end = true/' -i run.toml
unset SLURM_JOB_ID SLURM_STEP_ID SLURM_RESTART_COUNT
injected="env LD_PRELOAD=$SYSTEM_CALLS SYSTEM_CALLS_RULES=$work/rules"

start() {  # a job in the background that holds out/; $pid, and $rank, which has the lock
  # shellcheck disable=SC2086  # several options in one variable
  $MPIEXEC $MPIEXEC_FLAGS -n 2 $injected "$TRIREME" train run.toml --set train.steps=100000000 --set metrics.every=100 >first.txt 2>&1 &
  pid=$!
  local i
  for ((i = 0; i < 2400; ++i)); do
    [[ ! -s out/metrics.jsonl ]] || break
    kill -0 $pid 2>/dev/null || fail "the first job ended: $(cat first.txt)"
    sleep 0.05
  done
  rank=$(sed -n 's/^pid //p' out/.job.lock)
  [[ $(ranks_of $pid) == *"$rank"* ]] || fail "the lock is of process $rank, which is no rank"
}
second() {  # second [--set ...]: starts another job
  # shellcheck disable=SC2086  # several options in one variable
  launch $injected "$TRIREME" train run.toml --set train.steps=3 "$@"
}
refused() {
  expect_end 4 'is in use by another job:' "process $rank on $(hostname)"
  kill -0 "$rank" 2>/dev/null || fail 'the first job ended meanwhile'
}

# Two steps of one job of Slurm's are two jobs here.
export SLURM_JOB_ID=4711
for error in ENOLCK EOPNOTSUPP; do
  echo "flock any 1 $error .job.lock" >rules
  rm -rf out
  start
  second
  refused
  second --set run.output=elsewhere --set checkpoint.directory=out/checkpoints
  refused
  # A process of another user cannot be signalled: it counts as alive.
  printf '%s\n' "flock any 1 $error .job.lock" "kill any 1 EPERM $rank" >rules
  second
  refused
  # Killed: it shows no life, and its lock is taken over.
  # shellcheck disable=SC2046  # a number each
  kill -KILL $(ranks_of $pid)
  wait $pid 2>/dev/null || true
  echo "flock any 1 $error .job.lock" >rules
  second
  expect_done
done
