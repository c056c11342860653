# SPDX-License-Identifier: Apache-2.0
#
# Signals to one rank, to all, twice, in the first step and during a save; the end of a Slurm job; two jobs in one place.
# timeout: 600
# Fault, stops: signals to one rank or all, twice, in a save, evaluation or first step -> one checkpoint, exit code
#   75; a second SIGINT, or SIGTERM after two seconds, ends at once
# Fault, stops: a signal, the time limit or a kill in an evaluation -> a due save comes first; it ends between batches
#   and is repeated
# Fault, stops: the job's time ends; requeue -> saved in time; the same command resumes
# Fault, start: two jobs, steps of a job or users in one place, also without flock -> the second is refused; a stale
#   lock is explained
source "$TRIREME_SOURCE/tests/cli/small_run.sh"
source "$TRIREME_SOURCE/tests/support/processes.sh"

sed -e 's/^steps = .*/steps = 10000000/' -e 's/^at_end = .*/at_end = true/' -i run.toml
unset SLURM_JOB_ID SLURM_JOB_END_TIME

start() {  # start RANKS [--set ...]: a job in the background; $pid
  local ranks=$1
  shift
  rm -rf out
  # shellcheck disable=SC2086  # several options in one variable
  $MPIEXEC $MPIEXEC_FLAGS -n "$ranks" "$TRIREME" train run.toml "$@" >out.txt 2>err.txt &
  pid=$!
  last="train run.toml $*"
}
await() {  # await FILE: until it is there and has something in it
  local i
  for ((i = 0; i < 2400; ++i)); do
    # shellcheck disable=SC2086  # a pattern
    [[ ! -s $(echo $1) ]] || return 0
    kill -0 $pid 2>/dev/null || fail "the job ended while $1 was waited for"
    sleep 0.05
  done
  fail "no $1"
}
expect_stopped() {  # exit code 75, one checkpoint, at the step of the last line, whole; $2: or one of the step before, too
  status=0
  wait $pid || status=$?
  ((status == 75)) || fail "$1: exit code $status"
  local saved
  saved=$(ls out/checkpoints)
  [[ -z ${2:-} ]] || saved=$(tail -n 1 <<<"$saved")
  [[ $saved == step-* ]] || fail "$1: what is there is $saved"
  [[ $(grep -c '"loss"' out/metrics.jsonl) == $((10#${saved#step-})) ]] || fail "$1: another step was saved than reported"
  "$TRIREME" verify "out/checkpoints/$saved" >/dev/null || fail "$1: the checkpoint is damaged"
}

for signal in USR1 USR2 TERM; do
  start 4
  await out/metrics.jsonl
  kill -$signal "$(ranks_of $pid | tail -n 1)"
  expect_stopped "SIG$signal to one rank"
done

# Between steps that are traced: what was traced is written.
start 2 --set "metrics.trace_steps=[$(seq -s, 1 20000)]"
await out/metrics.jsonl
kill -USR1 "$(ranks_of $pid | tail -n 1)"
expect_stopped "SIGUSR1 between traced steps"
for rank in 0 1; do grep -q '"clip_norm"' out/trace-rank$rank.json || fail "rank $rank left no trace"; done

start 4
await out/metrics.jsonl
ranks=$(ranks_of $pid)
# shellcheck disable=SC2086  # a number each
kill -TERM $ranks $ranks  # Slurm sends it twice
expect_stopped 'SIGTERM to all ranks, twice' before  # in a step that took long on a busy machine
[[ $(grep -c 'SIGTERM: saving and stopping after this step.*kill -USR1 [0-9]' err.txt) == 1 ]] || fail 'what happens at a signal is not said once'
grep -q '^saves    at the end to out/checkpoints; to save and stop: kill -USR1 [0-9]' out.txt || fail 'how to stop is not said at the start'
grep -q 'warning checkpoint.every = 0: nothing is saved before the last step' err.txt || fail 'nobody warns that nothing is saved'

# In the first step: it is finished, and saved.
TRIREME_FAULT=step.begin:usr1:1:0 start 2
expect_stopped 'SIGUSR1 in the first step'
((10#$(ls out/checkpoints | sed s/step-//) <= 2)) || fail 'it came late'

# While a save is written: that one comes to its end, another follows.
TRIREME_FAULT=ckpt.write:usr1:0:3 start 2 --set checkpoint.every=4 --set checkpoint.keep=1
expect_stopped 'SIGUSR1 during a save'
grep -q '^saved out/checkpoints/step-00000004' out.txt || fail 'the save was given up'

# While the training waits for a save that was due anyway: nothing is trained or saved after it.
TRIREME_FAULT=ckpt.write:usr1:0:3 start 2 --set checkpoint.every=4 --set checkpoint.async=false
expect_stopped 'SIGUSR1 during a save that the training waits for'
[[ $(grep -c '^saved ' out.txt) == 1 && $(ls out/checkpoints) == step-00000004 ]] || fail 'it was saved twice'

# In an evaluation: it ends at once, and the resumed job repeats it.
TRIREME_FAULT=eval.batch:usr1:1:3 start 2 --set train.eval_every=4 --set data.validation=tokens.bin
expect_stopped 'SIGUSR1 in an evaluation'
[[ $(ls out/checkpoints) == step-00000004 ]] || fail 'the evaluation did not end'
! grep -q '"eval_loss":[0-9]' out/metrics.jsonl || fail 'the evaluation went on to its end'
job 2 train run.toml --set train.eval_every=4 --set data.validation=tokens.bin --set train.steps=5
expect_done
json_check 'assert [(r["step"], "eval_loss" in r) for r in rows] == [(1, 0), (2, 0), (3, 0), (4, 0), (4, 1), (5, 0)], rows' \
  out/metrics.jsonl

# A save that is due comes before the evaluation: one that is killed there loses nothing.
rm -rf out
TRIREME_FAULT=eval.batch:kill:1:3 job 2 train run.toml --set train.eval_every=4 --set data.validation=tokens.bin \
  --set checkpoint.every=4 --set checkpoint.async=false
((status != 0)) || fail 'the kill in the evaluation'
[[ $(ls out/checkpoints) == step-00000004 ]] || fail "killed in an evaluation: left are $(ls -A out/checkpoints)"

# The first SIGINT or SIGTERM requests a stop, a second one ends a rank at once, and so the job: here rank 1 hangs.
start_hanging() {  # a job whose rank 1 is stopped by SIGSTOP; $rank: the other one
  TRIREME_FAULT=step.begin:stop:1:3 start 2
  await_stopped $pid  # a signal that came before would end the job in good order, after step 3
  rank=$(ranks_of $pid | grep -vx "$stopped")
}
end_by_second() {  # end_by_second SIGNAL: repeated until the rank has ended, for a busy machine takes the first one in late
  local i
  for ((i = 0; i < 100; ++i)); do
    kill "-$1" "$rank" 2>/dev/null || break
    sleep 0.25
  done
  status=0
  wait $pid || status=$?
  ((status != 0 && status != 75 && status != 7)) || fail "SIG$1 twice: exit code $status"
  ! grep -q 'Hang:' err.txt || fail "the watchdog ended it, not the second SIG$1"
}

# 2.2 s: a second SIGTERM within 2 s is Slurm's repetition of the first.
for signal in INT TERM; do
  start_hanging
  kill -$signal "$rank"
  sleep 2.2
  kill -0 "$rank" 2>/dev/null || fail "the first SIG$signal ended it"
  end_by_second $signal
done

# The scheduler's time limit: the run stops in time, prints the reason, resumes with the same command, and counts. The batches of
# evaluations and exports count in the reserve: here 2 s (of 50 ms each) and 4 s (of 22 writes) or more.
export SLURM_JOB_END_TIME=$(($(date +%s) + 35))
echo 'write 0 1 sleep=0.2 /.export-step' >rules
slow=$(printf 'eval.batch:slow:0,%.0s' {1..40})
export LD_PRELOAD=$SYSTEM_CALLS SYSTEM_CALLS_RULES=$work/rules
TRIREME_FAULT=${slow%,} start 2 --set checkpoint.every=2 --set checkpoint.keep=1 --set checkpoint.async=false --set run.export=every_checkpoint \
  --set train.eval_every=2 --set train.eval_steps=1 --set data.validation=tokens.bin
unset LD_PRELOAD SYSTEM_CALLS_RULES
expect_stopped 'the end of the job'
reserved=$(sed -n 's/.* a step and a save may take \([0-9]*\) s: .*/\1/p' err.txt)
((reserved >= 3 * 2 + 3 * 4 / 2 - 1)) || fail "it reserved $reserved s"
(($(date +%s) < SLURM_JOB_END_TIME)) || fail 'it stopped late'
grep -q 'left before the time limit.* saving and stopping now' err.txt || fail 'it does not say why'
grep -q "stopped before the job's time limit" out.txt || fail 'it does not say that it stopped'
step=$(ls out/checkpoints | sed 's/step-0*//')
unset SLURM_JOB_END_TIME
export SLURM_RESTART_COUNT=1
job 2 train run.toml --set train.steps=$((step + 3))
expect_done
json_check "rows = [r for r in rows if 'loss' in r]
assert [r['step'] for r in rows] == list(range(1, $step + 4))
assert [r['restart_count'] for r in rows[-4:]] == [0, 1, 1, 1]" out/metrics.jsonl
job 2 train run.toml --set run.output=other --set train.steps=1 --set train.stop_before_limit_seconds=30
expect_done
grep -q 'the time limit of this job is unknown' err.txt || fail 'a limit that is not known is not said'
unset SLURM_RESTART_COUNT

# A second job in the same place is refused, whether it writes checkpoints or not; afterwards it may begin.
start 2
await out/metrics.jsonl
mv out.txt first.txt
mv err.txt first-err.txt
for set in run.output=out 'run.output=second --set checkpoint.directory=out/checkpoints'; do
  # shellcheck disable=SC2086  # several options
  job 2 train run.toml --set $set
  expect_end 4 'is in use by another job: process' "on $(hostname)"
done
kill -USR1 "$(ranks_of $pid | tail -n 1)"
expect_stopped 'the job that was there first'
# A killed job leaves its lock behind: it is no obstacle, and is reported.
start 2
await out/metrics.jsonl
# shellcheck disable=SC2046  # a number each
kill -KILL $(ranks_of $pid)
wait $pid 2>/dev/null || true
job 2 train run.toml --set train.steps=3
expect_done
grep -q 'was left behind .* taken over' err.txt || fail 'nothing is said of the lock that was left behind'
