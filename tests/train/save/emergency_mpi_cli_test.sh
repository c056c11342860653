# SPDX-License-Identifier: Apache-2.0
#
# Ctrl-C under mpirun, which kills its ranks long before their step ends: the last finished step is saved within it, and the restart
# gives what an undisturbed run does, bit for bit. Fails with all that is lost where a stop waits for its step.
# timeout: 300
# processors: 2
# Fault, stops: SIGTERM to all in a long step, then a kill (Ctrl-C under `mpirun`) -> the last finished step is saved
#   by all ranks or none; not on GPUs or with `memory.offload`
source "$TRIREME_SOURCE/tests/cli/small_run.sh"
source "$TRIREME_SOURCE/tests/support/processes.sh"

sed -e 's/^at_end = .*/at_end = true/' -i run.toml
unset SLURM_JOB_ID SLURM_JOB_END_TIME

# Gradients of the fourth step come so late on one rank that nothing here waits for its end.
slow=$(printf 'grad.reduce:slow:1:3,%.0s' {1..600})

start() {  # start [--set ...]: two ranks in their fourth step, in the background; $pid is the launcher's
  rm -rf out
  # shellcheck disable=SC2086  # several options in one variable
  TRIREME_FAULT=${slow%,} $MPIEXEC $MPIEXEC_FLAGS -n 2 "$TRIREME" train run.toml "$@" >out.txt 2>err.txt &
  pid=$!
  last="train run.toml $*"
  await 'test $(grep -c loss out/metrics.jsonl) = 3' 'the fourth step'
}
await() {  # await COMMAND WHAT: until it succeeds
  local i
  for ((i = 0; i < 2400; ++i)); do
    ! eval "$1" 2>/dev/null || return 0
    kill -0 $pid 2>/dev/null || break
    sleep 0.05
  done
  fail "$2 was waited for"
}
expect_saved() {  # expects only the checkpoint of the third step; it resumes as if undisturbed
  [[ $(find out/checkpoints -mindepth 1 -maxdepth 1 ! -name .job.lock -printf '%f ') == 'step-00000003 ' ]] || fail "left are $(ls -A out/checkpoints)"
  "$TRIREME" verify out/checkpoints/step-00000003 >/dev/null || fail 'the checkpoint is damaged'
  job 2 train run.toml
  expect_done
  grep -q 'resuming from out/checkpoints/step-00000003: step 3' err.txt || fail 'it does not resume'
  json_check 'steps = lambda file: [(r["step"], r["loss"], r["grad_norm"]) for r in map(json.loads, open(file)) if "loss" in r]
assert steps(files[0]) == steps(files[1]), (steps(files[0]), steps(files[1]))' out/metrics.jsonl plain/metrics.jsonl
}

job 2 train run.toml --set run.output=plain
expect_done

kill_after_save() {  # SIGTERM to all ranks, and SIGKILL as soon as there is a checkpoint
  local ranks
  ranks=$(ranks_of $pid)
  # shellcheck disable=SC2086  # a number each
  kill -TERM $ranks
  await 'test -e out/checkpoints/step-00000003/COMMIT' 'a checkpoint'
  await 'grep -q "^saved " out.txt' 'its end'
  # shellcheck disable=SC2086
  kill -KILL $ranks
  wait $pid || true
  # shellcheck disable=SC2086
  await_end_of $ranks
}

start
kill_after_save
grep -q 'SIGTERM: saving and stopping after this step.*; the one before it is saved at once' err.txt || fail 'nobody is told'
expect_saved

# A save that is due after the third step is under way, or done: nothing is saved twice.
start --set checkpoint.every=3
kill_after_save
[[ $(grep -c '^saved ' out.txt) == 1 ]] || fail 'it was saved twice'
expect_saved

# The launcher's own kill. Open MPI waits this long after Ctrl-C before it sends SIGTERM, and again before SIGKILL.
[[ $($MPIEXEC --version) == *'Open MPI'* ]] || exit 0
export OMPI_MCA_odls_base_sigkill_timeout=5
start
ranks=$(ranks_of $pid)
kill -INT $pid
status=0
wait $pid || status=$?
((status != 0 && status != 75)) || fail "mpirun let the step end: exit code $status"
# shellcheck disable=SC2086
await_end_of $ranks
expect_saved
