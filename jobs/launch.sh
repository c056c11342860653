# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Shared part of the batch scripts (jobs/write_scripts.sh copies it) and of those of `trireme submit`: starts the
# program on the job's tasks, signals the time limit and preemption to it, and requeues a job that saved in time.
#
# Variables that the script sets (the environment has precedence: sbatch --export=ALL,RUN=other.toml ...):
#   RUN            the run file
#   SETTINGS       more settings, "train.steps=2000 optimizer.lr=3e-4" (values without blanks)
#   TRIREME        the program
#   MODULES        environment modules to load
#   MPI_PLUGIN     srun's --mpi=; empty: pmix, or pmi2 for an MPICH and where srun has no pmix
#   SRUN_OPTIONS   binding and other options of srun
#   REQUEUE        yes: requeue a job that saved on a signal (exit code 75 otherwise), if its newest checkpoint is newer
#                  than the one at its start
#   FAILURES_TOO   yes: requeue failed jobs, too, on the same condition
#   CHECKPOINTS    checkpoint.directory, if it is not a plain line of the run file or a setting
#   SPARES         nodes of the job, of those in --nodes, that wait for another one's failure; the ranks then restart in
#                  the job (trireme supervise). Give sbatch --no-kill, or Slurm ends a job that loses a node
set -uo pipefail

# The job as scontrol, squeue and scancel select it. SLURM_JOB_ID of an array's last task selects the whole array.
job_id=${SLURM_JOB_ID:-?}
[[ -z ${SLURM_ARRAY_TASK_ID:-} ]] || job_id=${SLURM_ARRAY_JOB_ID:-$job_id}_$SLURM_ARRAY_TASK_ID

job_logs() { printf 'job %s: %s\n' "$job_id" "$*" >&2; }
job_fails() { job_logs "error: $1"; exit "$2"; }

load_modules() {
  [[ -n ${MODULES:-} ]] || return 0
  command -v module >/dev/null || job_fails "MODULES is set, but there is no module command on $(hostname)" 5
  # shellcheck disable=SC2086  # several modules
  module load $MODULES || job_fails "module load $MODULES" 5
}

# PMI of srun for this MPI. Without a matching one every rank starts as a separate job, which trireme rejects (exit code 5).
mpi_plugin() {
  [[ -z ${MPI_PLUGIN:-} ]] || { echo "$MPI_PLUGIN"; return; }
  local known plugin plugins=(pmix pmi2)
  # In usual builds, MPICH and its derivatives support PMI only.
  if grep -qE '^MPI .*(MPICH|MVAPICH|Intel)' <<<"$("$TRIREME" --version 2>/dev/null)"; then plugins=(pmi2 pmix); fi
  known=$(srun --mpi=list 2>&1)
  for plugin in "${plugins[@]}"; do
    if grep -qw "$plugin" <<<"$known"; then echo "$plugin"; return; fi
  done
  job_fails "srun knows neither pmix nor pmi2 (srun --mpi=list); set MPI_PLUGIN, or start trireme with MPI's own mpirun" 5
}

# Exports the end of the job, in seconds since 1970, so that the program stops before it; Slurm sets it from 23.02 on.
# Ignores other answers of squeue than one time in the future: none, an error, N/A (no limit), the times of several jobs.
export_end_of_job() {
  [[ -z ${SLURM_JOB_END_TIME:-} ]] || return 0
  local answer end
  answer=$(SLURM_TIME_FORMAT=standard squeue --noheader --jobs "$job_id" --format %e 2>/dev/null) || return 0
  [[ $answer =~ ^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}$ ]] || return 0
  end=$(date -d "$answer" +%s 2>/dev/null) || return 0
  ((end <= $(date +%s))) || export SLURM_JOB_END_TIME=$end
}

# setting SECTION KEY: its value in `arguments`, else in the run file, if it is on a separate line there.
setting() {
  local argument value=
  for argument in "${arguments[@]}"; do [[ $argument != "$1.$2="* ]] || value=${argument#*=}; done
  [[ -n $value ]] || value=$(awk -v section="$1" -v key="$2" '
    BEGIN { top = 1 }
    /^[ \t]*\[/ { top = 0; inside = index($0, "[" section "]") > 0 }
    inside && $0 ~ "^[ \t]*" key "[ \t]*=" || top && $0 ~ "^[ \t]*" section "[.]" key "[ \t]*=" {
      sub(/^[^=]*=[ \t]*/, ""); print; exit }' "$RUN")
  value=${value%%#*}
  xargs <<<"$value" 2>/dev/null  # without quotes and blanks
}

checkpoint_directory() {
  local directory=${CHECKPOINTS:-$(setting checkpoint directory)} output name
  output=$(setting run output)
  name=$(setting run name)
  echo "${directory:-${output:-runs/${name:-run}}/checkpoints}"
}

step_of() { [[ $1 =~ step-0*([0-9]+)/ ]] && echo "${BASH_REMATCH[1]}" || echo 0; }
newest_checkpoint() { find "$(checkpoint_directory)" -mindepth 2 -maxdepth 2 -path '*/step-*/COMMIT' 2>/dev/null | sort | tail -n 1; }

# start_step COMMAND...: runs it in the background; sets `step` to its pid and `step_says` to a pipe with its exit code.
# Does not use wait, which loses the exit code if a signal interrupts it while the process ends (bash 5.2 then returns -1).
start_step() {
  local out
  exec {out}>&1
  # A signal to all processes of the job must not end this one, which forwards the exit code.
  exec {step_says}< <(
    trap : USR1 TERM
    bash -c 'echo $$; exec "$@" >&"$0"' "$out" "$@" </dev/null
    echo $?
  )
  exec {out}>&-
  read -r step <&"$step_says"
}

# Waits for the step, and returns its exit code; a signal to this script goes to the step's tasks and does not end the read.
await_step() {
  local code=
  until read -r code <&"$step_says"; do (($? > 128)) || break; done
  exec {step_says}<&-
  return "${code:-137}"  # no exit code: the forwarding process was killed, too
}

signal_step() {
  signaled=yes
  job_logs "$1 at $(date -u +%H:%M:%S) UTC: asking the ranks to save"
  # USR1: the same to the program, and srun itself lives on.
  [[ -z $step ]] || kill -USR1 "$step" 2>/dev/null || true
}

# Traps come before the modules are loaded: an untrapped signal would end this script, and with it the job.
signaled=no
step=
trap 'signal_step USR1' USR1
trap 'signal_step TERM' TERM

# Seconds of Slurm's [days-]hours:minutes:seconds; a limit that is no time (UNLIMITED) is far away.
seconds_of() {
  [[ $1 =~ ^(([0-9]+)-)?([0-9]+):([0-9]+):([0-9]+)$ ]] || { echo 2000000000; return; }
  echo $(((10#0${BASH_REMATCH[2]} * 24 + 10#${BASH_REMATCH[3]}) * 3600 + 10#${BASH_REMATCH[4]} * 60 + 10#${BASH_REMATCH[5]}))
}

# Whether Slurm is ending the job although its time is not up. It calls that COMPLETING, as it does at the limit.
is_cancelled() {
  local job state ran limit
  job=$(scontrol --oneliner show job "$job_id") || return 1
  # Where Slurm answers with all tasks of an array, the line of this one.
  [[ -z ${SLURM_ARRAY_TASK_ID:-} ]] || job=$(grep -E "(^| )ArrayTaskId=$SLURM_ARRAY_TASK_ID( |$)" <<<"$job")
  job=$(tr ' ' '\n' <<<"$job")
  state=$(sed -n 's/^JobState=//p' <<<"$job")
  ran=$(sed -n 's/^RunTime=//p' <<<"$job")
  limit=$(sed -n 's/^TimeLimit=//p' <<<"$job")
  [[ $state == CANCELLED || $state == COMPLETING ]] && (($(seconds_of "$ran") < $(seconds_of "$limit")))
}

# A job that its user cancelled saved, too, but is not requeued; Slurm itself requeues one that it preempts without grace time.
# requeue_job WHY saved|early: saved, or a save was requested before the ranks had started.
requeue_job() {
  local after
  after=$(newest_checkpoint)
  if is_cancelled; then
    job_logs "cancelled: it stays out of the queue; submit the same script again to resume from the checkpoint"
    exit 75
  fi
  # Every life has to advance the run, or the chain would never end. If nothing outside ended a life after one step,
  # Trireme stopped it because of the time limit, and the next life would end in the same way.
  local steps=$(($(step_of "$after") - $(step_of "$before")))
  if [[ $2 == saved && -n $before && $after == "$before" ]]; then
    job_fails "no step since the last life: the newest checkpoint is still $(dirname "$after"). A life is too short for the start, one step and a save: request more time (--time, --signal)" 75
  elif [[ $2 == saved && $signaled == no && -n $after ]] && ((steps == 1)); then
    job_fails "one step in this life: the newest checkpoint is $(dirname "$after"). The time that is left at the start of a life holds no more: request more time (--time), or look at SLURM_JOB_END_TIME and train.stop_before_limit_seconds" 75
  elif [[ $2 == early || -z $after ]] || ((steps == 1)); then
    ((${SLURM_RESTART_COUNT:-0} < 10)) ||
      job_fails "ten lives, and this one saved nothing more than one step in $(checkpoint_directory) (CHECKPOINTS names another directory): it stays out of the queue" 75
  fi
  job_logs "$1: back into the queue"
  scontrol requeue "$job_id" ||
    job_fails "could not be put back into the queue; submit the same script again to resume from the checkpoint" 75
  # Slurm ends this script now.
  sleep 60
  exit 75
}

# train ARGUMENTS...: the job's command. Arguments are passed to trireme train after the run file.
train() {
  load_modules
  command -v "$TRIREME" >/dev/null || job_fails "there is no program $TRIREME: load its module, or set TRIREME" 5
  [[ -r $RUN ]] || job_fails "cannot read the run file $RUN (from $PWD)" 2
  local one arguments=("$RUN") plugin before supervisor=() code=0
  for one in ${SETTINGS:-}; do arguments+=(--set "$one"); done
  arguments+=("$@")
  plugin=$(mpi_plugin) || exit $?
  # srun does not take --cpus-per-task over from sbatch (Slurm 22.05 and later).
  export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1} OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
  export_end_of_job
  # No core dumps of thousands of ranks.
  ulimit -c 0
  before=$(newest_checkpoint)
  [[ $signaled == no || ${REQUEUE:-yes} != yes ]] || requeue_job "asked to save before the ranks had begun" early
  ((${SPARES:-0} == 0)) || supervisor=("$TRIREME" supervise --spares "$SPARES" --)
  job_logs "$SLURM_NTASKS ranks on ${SLURM_JOB_NUM_NODES} nodes ($SLURM_JOB_NODELIST)${supervisor:+, nodes of them spare: $SPARES}, $OMP_NUM_THREADS threads each, --mpi=$plugin," \
    "restart ${SLURM_RESTART_COUNT:-0}"
  # --kill-on-bad-exit=0: the first rank that exits with 75 must not kill the others; a failing rank aborts the job itself.
  # shellcheck disable=SC2086  # several options in one variable
  start_step "${supervisor[@]}" srun --mpi="$plugin" --kill-on-bad-exit=0 --wait=60 ${SRUN_OPTIONS:-} "$TRIREME" train "${arguments[@]}"
  [[ $signaled == no ]] || kill -USR1 "$step"
  await_step || code=$?
  trap - USR1 TERM

  if ((code == 75)); then
    [[ ${REQUEUE:-yes} == yes ]] || job_fails "saved, not put back into the queue (REQUEUE=$REQUEUE)" 75
    requeue_job "saved" saved
  fi
  # USR1 or TERM ended the ranks during start-up: nothing was computed yet, and nothing is lost.
  if [[ $signaled == yes && ${REQUEUE:-yes} == yes ]] && ((code == 138 || code == 143)); then
    requeue_job "asked to save before the ranks had begun" early
  fi
  # 7: a hang; 128+n: killed, by Slurm or the kernel. Other codes are permanent errors.
  if [[ ${FAILURES_TOO:-no} == yes ]] && ((code == 7 || code > 128)); then
    local after
    after=$(newest_checkpoint)
    if [[ -n $after && $after != "$before" ]]; then
      requeue_job "ended with $code after $(basename "$(dirname "$after")") was saved" saved
    fi
    job_logs "ended with $code, and no new checkpoint was saved: it would only break again"
  fi
  exit "$code"
}
