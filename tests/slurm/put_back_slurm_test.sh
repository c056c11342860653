# SPDX-License-Identifier: Apache-2.0
#
# When jobs/launch.sh puts a job back into the queue, and when it stops with words: with programs in the place of Slurm's, so that
# every life takes a moment. On a cluster: the other tests here.
# timeout: 120
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
[[ -z $SAVES ]] || { mkdir -p "$SAVES" && touch "$SAVES/COMMIT"; }
exit "$STEP_ENDS"
SH
stand_in scontrol <<'SH'
#!/bin/sh
[ "$1" != requeue ] || { echo requeue >>calls; exit; }
echo "JobId=7 JobState=${STATE:-RUNNING} RunTime=00:01:00 TimeLimit=00:10:00"
SH
stand_in squeue <<'SH'
#!/bin/sh
echo 2099-01-01T00:00:00
SH
stand_in sleep <<'SH'
#!/bin/sh
SH
printf '[run]\noutput = "out"\n' >run.toml

# life [VARIABLE=value...] CODE CALLS TEXT: a life of the job ends with CODE, after CALLS of srun and scontrol, and says TEXT.
life() {
  local variables=() status=0
  while [[ $1 == *=* ]]; do variables+=("$1"); shift; done
  : >calls
  env PATH="$work/bin:$PATH" RUN=run.toml TRIREME=trireme SLURM_JOB_ID=7 SLURM_NTASKS=2 SLURM_JOB_NUM_NODES=1 \
    SLURM_JOB_NODELIST=n1 STEP_ENDS=75 SAVES= "${variables[@]}" \
    bash -c "export JOB_SHELL=\$\$; source $TRIREME_SOURCE/jobs/launch.sh && train" >out.txt 2>err.txt || status=$?
  ((status == $1)) || fail "exit code $status, expected $1"
  [[ $(paste -sd ' ' calls) == "$2" ]] || fail "called: $(paste -sd ' ' calls), expected: $2"
  grep -q -- "$3" err.txt || fail "not said: $3"
}

# It saved on a signal: it comes back while it brings the run further, however often it did.
life SAVES=out/checkpoints/step-00000004 75 'step requeue' 'saved: back into the queue'
life SAVES=out/checkpoints/step-00000008 SLURM_RESTART_COUNT=50 75 'step requeue' 'saved: back into the queue'
life SLURM_RESTART_COUNT=1 75 step 'error: no step since the last life: the newest checkpoint is still out/checkpoints/step-00000008'
life STEP_ENDS=0 0 step 'restart 0'
life STATE=CANCELLED SAVES=out/checkpoints/step-00000009 75 step 'cancelled: it stays out of the queue'

# It saved nothing that can be found: ten lives, not more.
rm -r out
life SLURM_RESTART_COUNT=9 75 'step requeue' 'saved: back into the queue'
life SLURM_RESTART_COUNT=10 75 step 'ten lives, and this one saved nothing in out/checkpoints'

# Warned while its modules are loaded, or while the ranks start: nothing is lost, and it comes back; ten times.
# shellcheck disable=SC2317  # exported
module() { kill -USR1 $$; }
export -f module
life MODULES=any 75 requeue 'asked to save before the ranks had begun: back into the queue'
life MODULES=any SLURM_RESTART_COUNT=10 75 '' 'ten lives, and this one saved nothing'
# shellcheck disable=SC2317
module() { kill -TERM $$; }
life MODULES=any 75 requeue 'asked to save before the ranks had begun: back into the queue'
stand_in srun <<'SH'
#!/bin/bash
[[ $1 != --mpi=list ]] || { echo pmix; exit; }
echo "step" >>calls
kill -USR1 "$JOB_SHELL"
kill -USR1 $$
SH
life 75 'step requeue' 'asked to save before the ranks had begun: back into the queue'

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

# A failure comes back only if its life saved something new, and only where that is asked for.
stand_in srun <<'SH'
#!/bin/bash
[[ $1 != --mpi=list ]] || { echo pmix; exit; }
echo "step" >>calls
[[ -z $SAVES ]] || { mkdir -p "$SAVES" && touch "$SAVES/COMMIT"; }
exit "$STEP_ENDS"
SH
life STEP_ENDS=7 SAVES=out/checkpoints/step-00000002 7 step 'restart 0'
life STEP_ENDS=7 FAILURES_TOO=yes SAVES=out/checkpoints/step-00000004 75 'step requeue' 'ended with 7 after step-00000004 was saved'
life STEP_ENDS=7 FAILURES_TOO=yes 7 step 'no new checkpoint was saved: it would only break again'
life STEP_ENDS=6 FAILURES_TOO=yes SAVES=out/checkpoints/step-00000006 6 step 'restart 0'
