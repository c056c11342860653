# SPDX-License-Identifier: Apache-2.0
#
# One timer from MPI_Init until the process is gone: a rank that freezes, or a file system that does not answer, in any part of it
# ends the job with exit code 7 in time; a job that is suspended as a whole, an unread standard error and slow storage do not.
# timeout: 600
# processors: 2
# Fault, hangs: a rank or file system stops anywhere from MPI_Init to MPI_Finalize -> exit code 7 within
#   `comm.timeout_seconds`, one message
# Fault, hangs: all ranks are suspended longer than the deadline -> suspended time does not count
# Fault, start: standard error is not read (a full pipe, a stopped terminal) -> after two seconds messages go to
#   `messages.log` only; training continues
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

allowed=10  # comm.timeout_seconds, also before the run file is read
quick=(--set "comm.timeout_seconds=$allowed" --set train.steps=2)

# stopped NAME CALL RANK NTH [PART]: a job of three ranks of which one stops there; in the background, as it mostly waits.
stopped() {
  local name=$1
  shift
  local preload=(env "LD_PRELOAD=$STOPPED_CALLS" "STOPPED_CALL=$*")
  # shellcheck disable=SC2086  # several options in one variable
  timeout 120 $MPIEXEC $MPIEXEC_FLAGS -n 3 "${preload[@]}" "$TRIREME" train run.toml "${quick[@]}" --set run.output="$name" \
    --set batch.global=12 >"$name.out" 2>"$name.err" &
  job_of[$name]=$!
  began_at[$name]=$SECONDS
  sleep 0.5  # Open MPI makes its directory of sessions without regard to another start
}
hangs() {  # hangs NAME TEXT
  ended "$1"
  expect_end 7 "Hang: " "$2"
  expect_soon
}

stopped first MPI_Bcast 1 1
stopped second MPI_Allreduce 1 1
stopped third MPI_Comm_split_type 1 1
hangs first 'the start has been in "MPI_Init and the set-up of communicators"'
hangs second 'the start has been in "MPI_Init and the set-up of communicators"'
hangs third 'the start has been in "MPI_Init and the set-up of communicators"'
stopped fourth MPI_Comm_split 2 1
stopped fifth MPI_Comm_dup 0 2
stopped sixth MPI_Init_thread 1 1
hangs fourth 'the start has been in "MPI_Init and the set-up of communicators"'
hangs fifth 'the start has been in "'
hangs sixth 'the start has been in "MPI_Init and the set-up of communicators"'
stopped last MPI_Finalize 1 1
stopped left MPI_Finalize_return 1 1
stopped look stat 0 1 /.heartbeat
hangs last 'the end has been in "MPI_Finalize"'
json_check 'assert rows[-1]["step"] == 2' out/metrics.jsonl  # the run before it is complete
hangs left 'MPI_Finalize has not returned on rank 1 on '
json_check 'assert rows[-1]["step"] == 2' out/metrics.jsonl
hangs look 'the start has been in "setting up the job"'

# Suspended as a whole for longer than the deadline, in steps of some seconds: it continues, and no rank is reported.
export TRIREME_FAULT=step.begin:slow,step.begin:slow,step.begin:slow,step.begin:slow
for ranks in 1 3; do
  beside suspended$ranks $ranks train run.toml --set comm.timeout_seconds=$allowed --set train.steps=60 --set batch.global=12
done
unset TRIREME_FAULT
ranks_under() { pgrep -f "run.output=suspended" | while read -r pid; do [[ $(cat "/proc/$pid/comm") != trireme ]] || echo "$pid"; done; }
for name in suspended1 suspended3; do
  for ((i = 0; i < 600; ++i)); do [[ ! -s $name/metrics.jsonl ]] || break; sleep 0.1; done
done
mapfile -t pids < <(ranks_under)
((${#pids[@]} == 4)) || fail "found ${#pids[@]} ranks to suspend"
kill -STOP "${pids[@]}"
sleep $((2 * allowed))
kill -CONT "${pids[@]}"
for name in suspended1 suspended3; do
  ended $name
  expect_done
  json_check 'assert [r["step"] for r in rows if "loss" in r] == list(range(1, 61))' out/metrics.jsonl
done

# An unread standard error: messages are dropped there, and are in the file.
mkfifo unread
exec 7<>unread
head -c 65536 /dev/zero >&7
timeout 100 "$TRIREME" train run.toml "${quick[@]}" --set run.output=unread-run --set metrics.report=false \
  --set train.stop_before_limit_seconds=30 --set checkpoint.at_end=true 2>&7 7>&- >out.txt || fail "an unread standard error: exit code $?"
exec 7>&-
grep -q 'the time limit of this job is unknown' unread-run/messages.log || fail 'messages are not in the file'

# Slow storage: a flush of step_times.json; the removal of an old checkpoint, file by file; removals and renames that each take
# most of the deadline.
slowly() {  # slowly NAME RULE [--set ...]
  echo "$2" >"$1.rules"
  counted="env LD_PRELOAD=$SYSTEM_CALLS SYSTEM_CALLS_RULES=$work/$1.rules"
  beside "$1" 2 train run.toml "${quick[@]}" "${@:3}"
  counted=
}
slowly times 'fsync 0 1 sleep=18 /step_times'
slowly removal 'unlink 0 1-9 sleep=4 .removed' --set checkpoint.every=1 --set checkpoint.keep=1 --set checkpoint.async=false \
  --set checkpoint.ranks_per_file=1
slowly link $'unlink 0 1-2 sleep=7 /.best.next\nrename 0 1-2 sleep=7 /.best.next' --set data.validation=tokens.bin --set train.eval_every=1 \
  --set train.eval_steps=1 --set checkpoint.keep_best=true --set checkpoint.async=false
for name in times removal link; do
  ended $name
  expect_done
done
