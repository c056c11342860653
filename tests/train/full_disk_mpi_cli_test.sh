# SPDX-License-Identifier: Apache-2.0
#
# A disk that is full for a while: the training continues, and no output is missing afterwards. Simulated by a limit of the file
# size on running ranks.
# timeout: 300
# Fault, saves: disk full for metrics, events, traces, step times -> one warning; the logs catch up later
source "$TRIREME_SOURCE/tests/cli/small_run.sh"
source "$TRIREME_SOURCE/tests/support/processes.sh"

sed -e 's/^steps = .*/steps = 10000000/' -e 's/^at_end = .*/at_end = true/' -i run.toml
limit() {  # limit BYTES: of every file of every rank
  local rank
  for rank in $(ranks_of $pid); do prlimit --pid "$rank" --fsize="$1": || exit 77; done
}
until_said() {  # until_said TEXT: in err.txt
  local i
  for ((i = 0; i < 1800; ++i)); do
    ! grep -q "$1" err.txt || return 0
    kill -0 $pid 2>/dev/null || fail "the job ended while \"$1\" was waited for"
    sleep 0.1
  done
  fail "no message: $1"
}

last='a full disk'
# Rank 0 stops before the step that is traced, until the disk is full.
# shellcheck disable=SC2086  # several options in one variable
TRIREME_FAULT=step.begin:slow,step.begin:stop:0:10 $MPIEXEC $MPIEXEC_FLAGS -n 2 "$TRIREME" train run.toml --set metrics.tensorboard=true --set metrics.trace_steps='[40]' >out.txt 2>err.txt &
pid=$!
await_stopped $pid
limit 1000
kill -CONT "$stopped"
until_said 'metrics.jsonl: cannot be written: File too large. The training continues'
until_said 'trace-rank0.json: not written yet (.*File too large.*The training continues'
lines=$(wc -l <out/metrics.jsonl)
sleep 1
[[ $(wc -l <out/metrics.jsonl) == "$lines" ]] || fail 'the disk was not full'
for ((i = 0; i < 50; ++i)); do  # it is tried again every second, which takes a moment
  [[ -e out/trace-rank0.json.partial ]] || break
  sleep 0.05
done
[[ ! -e out/trace-rank0.json && i -lt 50 ]] || fail 'half a trace'
[[ $(grep -c 'metrics.jsonl: cannot be written' err.txt) == 1 ]] || fail 'it is said more than once'
limit unlimited
until_said 'metrics.jsonl: written again; .* late lines caught up'
until_said 'trace-rank0.json: written now'
kill -USR1 "$(ranks_of $pid | tail -n 1)"
status=0
wait $pid || status=$?
((status == 75)) || fail "exit code $status"
saved=$(ls out/checkpoints)
json_check "assert [r['step'] for r in rows] == list(range(1, 1 + $((10#${saved#step-}))))" out/metrics.jsonl
json_check 'assert rows[0]["traceEvents"]' out/trace-rank0.json
json_check 'assert rows[0]["traceEvents"]' out/trace-rank1.json
