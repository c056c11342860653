# SPDX-License-Identifier: Apache-2.0
#
# When jobs/launch.sh puts a job back into the queue, and when it stops with words: with programs in the place of Slurm's, so that
# every life takes a moment. On a cluster: the other tests here.
# timeout: 120
# Fault, stops: a task of a job array is stopped, cancelled or at its limit -> only that task is requeued or stays out
# Fault, stops: the job's end is unknown, invalid or past -> no limit, with a warning
# Fault, stops: a job is signalled while modules load -> requeued
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-put-back-test.XXXXXX")
source "$TRIREME_SOURCE/tests/support/skips.sh"
cd "$work"
fail() { printf 'FAILED: %s\n' "$*"; cat err.txt calls; exit 1; }

mkdir bin
stand_in() { cat >"bin/$1" && chmod +x "bin/$1"; }  # stand_in NAME <TEXT
stand_in trireme <<'SH'
#!/bin/sh
exit 0
SH
stand_in srun <<'SH'
#!/bin/bash
[[ $1 != --mpi=list ]] || { echo pmix; exit; }
echo "step" >>calls
echo "end=${SLURM_JOB_END_TIME-}" >end.txt
[[ -z $SAVES ]] || { mkdir -p "$SAVES" && touch "$SAVES/COMMIT"; }
exit "$STEP_ENDS"
SH
stand_in scontrol <<'SH'
#!/bin/sh
[ "$1" != requeue ] || { echo "requeue $2" >>calls; exit; }
asked=$4
# A single task of an array; for the id of the array, which is its last task's too, scontrol returns all tasks.
for task in 0 1 2; do
  state=RUNNING
  [ "$task" = 0 ] && state=COMPLETED
  [ "$task" = "${CANCELLED_TASK:-none}" ] && state=CANCELLED
  case "$asked,${ARRAY_ALWAYS_WHOLE:-no}" in
    "7_$task",no | 7_*,yes) echo "JobId=$((7 + 2 - task)) ArrayJobId=7 ArrayTaskId=$task JobState=$state RunTime=00:01:00 TimeLimit=00:10:00" ;;
  esac
done
[ "$asked" != 7 ] || echo "JobId=7 JobState=${STATE:-RUNNING} RunTime=00:01:00 TimeLimit=00:10:00"
SH
stand_in squeue <<'SH'
#!/bin/sh
[ -z "$SQUEUE_FAILS" ] || { echo "slurm_load_jobs error" >&2; exit 1; }
printf '%b' "${END-2099-01-01T00:00:00\\n}"
SH
stand_in sleep <<'SH'
#!/bin/sh
SH
printf '[run]\noutput = "out"\n' >run.toml

# life [VARIABLE=value...] CODE CALLS TEXT: a life of the job ends with CODE, after CALLS of srun and scontrol, and prints TEXT.
life() {
  local variables=() status=0
  while [[ $1 == *=* ]]; do variables+=("$1"); shift; done
  : >calls
  rm -f end.txt
  env PATH="$work/bin:$PATH" RUN=run.toml TRIREME=trireme SLURM_JOB_ID=7 SLURM_NTASKS=2 SLURM_JOB_NUM_NODES=1 \
    SLURM_JOB_NODELIST=n1 STEP_ENDS=75 SAVES= "${variables[@]}" \
    bash -c "export JOB_SHELL=\$\$; source $TRIREME_SOURCE/jobs/launch.sh && train" >out.txt 2>err.txt || status=$?
  ((status == $1)) || fail "exit code $status, expected $1"
  [[ $(paste -sd ' ' calls) == "$2" ]] || fail "called: $(paste -sd ' ' calls), expected: $2"
  grep -q -- "$3" err.txt || fail "not printed: $3"
}

# It saved on a signal: it comes back while it brings the run further, however often it did.
life SAVES=out/checkpoints/step-00000004 75 'step requeue 7' 'saved: back into the queue'
life SAVES=out/checkpoints/step-00000008 SLURM_RESTART_COUNT=50 75 'step requeue 7' 'saved: back into the queue'
life SLURM_RESTART_COUNT=1 75 step 'error: no step since the last life: the newest checkpoint is still out/checkpoints/step-00000008'
life STEP_ENDS=0 0 step 'restart 0'
life STATE=CANCELLED SAVES=out/checkpoints/step-00000009 75 step 'cancelled: it stays out of the queue'

# A life of one step that no signal cut short is one that the next would repeat; a preempted one may come back ten times.
life SAVES=out/checkpoints/step-00000010 75 step 'error: one step in this life: the newest checkpoint is out/checkpoints/step-00000010'
life SAVES=out/checkpoints/step-00000012 75 'step requeue 7' 'saved: back into the queue'

# A task of an array puts itself back and nothing else, by a name that selects no other task; cancelled, it stays out.
task() { life SLURM_ARRAY_JOB_ID=7 "SLURM_ARRAY_TASK_ID=$1" "SLURM_JOB_ID=$((9 - $1))" "${@:2}"; }
for whole in no yes; do
  rm -r out
  task 1 ARRAY_ALWAYS_WHOLE=$whole SAVES=out/checkpoints/step-00000004 75 'step requeue 7_1' 'job 7_1: saved: back into the queue'
  task 2 ARRAY_ALWAYS_WHOLE=$whole SAVES=out/checkpoints/step-00000008 75 'step requeue 7_2' 'job 7_2: saved: back into the queue'
  task 2 ARRAY_ALWAYS_WHOLE=$whole CANCELLED_TASK=1 SAVES=out/checkpoints/step-00000012 75 'step requeue 7_2' 'saved: back into the queue'
  task 2 ARRAY_ALWAYS_WHOLE=$whole CANCELLED_TASK=2 SAVES=out/checkpoints/step-00000016 75 step 'cancelled: it stays out of the queue'
done

# The end of the job that the program gets: one time in the future, or none.
ends_at() { [[ $(cat end.txt) == "end=$1" ]] || fail "the program got $(cat end.txt), expected end=$1"; }
life STEP_ENDS=0 0 step 'restart 0'
ends_at "$(date -d 2099-01-01T00:00:00 +%s)"
for end in '' '\n' 'N/A\n' 'NONE\n' 'Unknown\n' '2099-01-01T00:00:00\n2099-01-02T00:00:00\n' '2001-01-01T00:00:00\n' 'tomorrow\n' '00:00\n'; do
  life "END=$end" STEP_ENDS=0 0 step 'restart 0'
  ends_at ''
done
life SQUEUE_FAILS=yes STEP_ENDS=0 0 step 'restart 0'
ends_at ''
life SQUEUE_FAILS=yes SLURM_JOB_END_TIME=4070908800 STEP_ENDS=0 0 step 'restart 0'
ends_at 4070908800

# It saved nothing that can be found: ten lives, not more.
rm -r out
life SLURM_RESTART_COUNT=9 75 'step requeue 7' 'saved: back into the queue'
life SLURM_RESTART_COUNT=10 75 step 'ten lives, and this one saved nothing more than one step in out/checkpoints'

# Warned while its modules are loaded, or while the ranks start: nothing is lost, and it comes back; ten times.
# shellcheck disable=SC2317  # exported
module() { kill -USR1 $$; }
export -f module
life MODULES=any 75 'requeue 7' 'asked to save before the ranks had begun: back into the queue'
life MODULES=any SLURM_RESTART_COUNT=10 75 '' 'ten lives, and this one saved nothing more'
# shellcheck disable=SC2317
module() { kill -TERM $$; }
life MODULES=any 75 'requeue 7' 'asked to save before the ranks had begun: back into the queue'
stand_in srun <<'SH'
#!/bin/bash
[[ $1 != --mpi=list ]] || { echo pmix; exit; }
echo "step" >>calls
kill -USR1 "$JOB_SHELL"
kill -USR1 $$
SH
life 75 'step requeue 7' 'asked to save before the ranks had begun: back into the queue'

# The signal comes while the step ends, where bash's wait loses the exit code.
stand_in srun <<'SH'
#!/bin/bash
[[ $1 != --mpi=list ]] || { echo pmix; exit; }
trap '' USR1
echo "step" >>calls
kill -USR1 "$JOB_SHELL"
exit "$STEP_ENDS"
SH
for code in 75 75 75 7 3 0 143; do life "STEP_ENDS=$code" REQUEUE=no "$code" step 'USR1 at'; done

# A failed job is requeued only if its life saved a new checkpoint, and only if requested.
stand_in srun <<'SH'
#!/bin/bash
[[ $1 != --mpi=list ]] || { echo pmix; exit; }
echo "step" >>calls
echo "end=${SLURM_JOB_END_TIME-}" >end.txt
[[ -z $SAVES ]] || { mkdir -p "$SAVES" && touch "$SAVES/COMMIT"; }
exit "$STEP_ENDS"
SH
life STEP_ENDS=7 SAVES=out/checkpoints/step-00000002 7 step 'restart 0'
life STEP_ENDS=7 FAILURES_TOO=yes SAVES=out/checkpoints/step-00000004 75 'step requeue 7' 'ended with 7 after step-00000004 was saved'
life STEP_ENDS=7 FAILURES_TOO=yes 7 step 'no new checkpoint was saved: it would only break again'
life STEP_ENDS=6 FAILURES_TOO=yes SAVES=out/checkpoints/step-00000006 6 step 'restart 0'
