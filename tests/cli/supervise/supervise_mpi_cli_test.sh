# SPDX-License-Identifier: Apache-2.0
#
# trireme supervise: when a run is restarted, on which nodes, and when not. With a program in the place of srun, so that an
# attempt takes a moment; then under mpirun with a host file. On a Slurm cluster: tests/slurm/survive*.
# timeout: 150
# Fault, hangs: failures that a restart would repeat: no new step three times, out of memory twice at one step, no
#   time left -> no restart, with the reason
work=$(mktemp -d /var/tmp/trireme-supervise-test.XXXXXX)
source "$TRIREME_SOURCE/tests/support/skips.sh"
cd "$work"
fail() { printf 'FAILED: %s\n' "$*"; tail -n 40 err.txt; cat calls; exit 1; }

yes 'The ship has three banks of oars.' 2>/dev/null | head -n 400 >text.txt || true
"$TRIREME" tokenize --tokenizer bytes -o tokens.bin text.txt >/dev/null
cat >run.toml <<'TOML'
[run]
output = "out"
[model]
vocab_size = 257
hidden_size = 32
intermediate_size = 64
layers = 1
heads = 4
kv_heads = 2
[data]
train = "tokens.bin"
seq_len = 32
[batch]
global = 8
micro = 1
[precision]
compute = "fp32"
[lr]
schedule = "constant"
[train]
steps = 40
[checkpoint]
every = 5
[device]
type = "cpu"
TOML

mkdir bin
cat >bin/scontrol <<'SH'
#!/bin/sh
printf 'n1\nn2\nn3\n'
SH
# Reports of healthy nodes, or an attempt of the run by the function `attempt` of the test, with its number.
cat >bin/srun <<'SH'
#!/bin/bash
echo "$*" >>calls
option() { sed -nE "s/.*$1[ =]([^ ]*).*/\1/p" <<<"$all"; }
all=$*
if [[ " $* " == *" doctor "* ]]; then
  [[ -z ${CHECK_HANGS:-} || $(grep -c ' train ' calls) == 0 ]] || exec sleep 1000
  for node in n1 n2 n3; do
    [[ ,$(option --exclude), != *,$node,* && ! (-e dead && $node != n1) ]] || continue
    [[ $(grep -c ' train ' calls) != 0 || " ${DEAD_AT_START:-} " != *" $node "* ]] || continue
    printf '{"node":"%s","unix_seconds":%s,"problems":[],"gpus":0,"network_ports":1,"memory_bytes":1,"oom_kills":0}' \
      $node "$(date +%s)" >"$(option --report)/.$node"
    mv "$(option --report)/.$node" "$(option --report)/$node.json"
  done
  exit
fi
row() { mkdir -p out && printf '{"step":%s,"time":%s}\n' "$1" "$(date +%s.%N)" >>out/metrics.jsonl; }
killed() { echo "srun: error: $1: task 3: ${2:-Killed}" >&2; exit 137; }
attempt "$(grep -c ' train ' calls)"
SH
chmod +x bin/*

begin() {  # begin [VARIABLE=value...] OPTIONS: in the background
  rm -rf out calls
  touch calls
  local variables=()
  while [[ $1 == [A-Z]*=* ]]; do variables+=("$1"); shift; done
  env PATH="$work/bin:$PATH" SLURM_JOB_ID=7 'SLURM_JOB_NODELIST=n[1-3]' SLURM_NTASKS=6 SLURM_NTASKS_PER_NODE=2 \
    "${variables[@]}" "$TRIREME" supervise "$@" -- srun --mpi=pmix trireme train run.toml --set "run.name=a b" >out.txt 2>err.txt &
  supervisor=$!
}
# ends CODE ATTEMPTS [TEXT...]: the supervisor ends with CODE after so many attempts, and printed TEXT.
ends() {
  local status=0
  wait "$supervisor" || status=$?
  ((status == $1)) || fail "exit code $status, expected $1"
  [[ $(grep -c ' train ' calls) == "$2" ]] || fail "$(grep -c ' train ' calls) attempts, expected $2"
  local text
  for text in "${@:3}"; do grep -qF -- "$text" err.txt || fail "not printed: $text"; done
  ! compgen -G 'out/.supervise*' >/dev/null || fail "files are left behind"
}
begun() { for _ in $(seq 200); do (($(grep -c " $1 " calls) < $2)) || return 0; sleep 0.05; done; fail "no $1 number $2"; }
nodes_of_attempt() { grep ' train ' calls | sed -n "$1p" | sed -nE 's/.*--exclude=([^ ]*).*/\1/p'; }

attempt() { row 3; exit 0; }
export -f attempt
begin --spares 1
ends 0 1
[[ $(grep ' train ' calls) == '--mpi=pmix --nodes=2 --ntasks=4 --ntasks-per-node=2 --overlap --no-kill --exclude=n3 -- trireme train run.toml --set run.name=a b' ]] ||
  fail "the command"
begin DEAD_AT_START=n1 --spares 1
ends 0 1 'node n1 is not used: does not answer'
[[ $(nodes_of_attempt 1) == n1 ]] || fail "a node that does not answer at the start is used"

# Permanent errors are no reason to restart; a run that saved on a signal ends.
for code in 2 3 4 5 6 8 75; do
  eval "attempt() { row 3; exit $code; }"
  begin --spares 1
  ends "$code" 1
done

# The named node is replaced, and restarts need progress.
attempt() { row $((5 * $1)); (($1 == 3)) || killed "n$((3 - $1))"; }
begin --spares 1
ends 0 3 'the ranks ended with exit code 137 after step 5: srun: error: n2: task 3: Killed' 'restart 1 on n1, n3' 'restart 2 on n2, n3' 'restart 2: step 15 ended'
[[ $(nodes_of_attempt 2) == n2 && $(nodes_of_attempt 3) == n1 ]] || fail "nodes of the attempts"
attempt() { row 5; killed n2; }
begin --spares 1 --restarts-without-progress 2
ends 137 3 'no restart: 3 attempts ended without a step beyond step 5'

# Goodput of the run, which the ranks record, with what only the supervisor sees.
attempt() {
  local now step=$((5 * ($1 - 1)))
  now=$(date +%s.%N)
  mkdir -p out
  printf '{"event":"start","time":%s,"step":%s,"began":%s,"life":%s}\n{"event":"load","time":%s,"step":%s}\n' \
    "$now" $((step + ($1 > 1))) "$now" $(($1 - 1)) "$now" "$step" >>out/goodput.jsonl
  sleep 0.2
  row $((step + 6))
  (($1 == 3)) || killed n2
}
begin --spares 1
ends 0 3 'goodput ' ' in 3 attempts: ' ', 2 repeated steps '
[[ $(grep -o '"event":"[a-z]*"' out/goodput.jsonl | cut -d'"' -f4 | tr '\n' ' ') == \
  'start load failure restart start load failure restart start load ' ]] || fail "events: $(cat out/goodput.jsonl)"
attempt() { exit 2; }
begin --spares 1
ends 2 1
! grep -q goodput err.txt || fail "goodput of a run that did not train"

# Out of memory once: a second attempt on the same node.
attempt() { row 5; killed n2 "Out Of Memory"; }
begin --spares 1
ends 137 2 'no restart: a rank ran out of memory twice after step 5'
[[ $(nodes_of_attempt 2) == n3 ]] || fail "a node was replaced after a rank ran out of memory"

# Fewer ranks where the mesh fits them.
attempt() { row $((5 * $1)); (($1 > 1)) || killed n2; }
attempt() { row $((5 * $1)); (($1 > 1)) || { touch dead; killed n2; }; }
begin --spares 1
ends 0 2 'continuing with 2 ranks in the place of 4'
[[ $(nodes_of_attempt 2) == n2,n3 ]] || fail "nodes of the second attempt"
rm dead
sed -i 's/^global = 8/global = 10/; s/^micro = 1/micro = 5/' run.toml
printf '[mesh]\nshard = 2\ntensor = 2\n' >>run.toml
begin --spares 1
ends 137 1 'no restart: 1 of 3 nodes are healthy, 2 are needed, and the mesh or the batch does not fit fewer ranks'
rm dead

# No restart where start and save do not fit before the time limit.
attempt() { row 5; killed n2; }
begin "SLURM_JOB_END_TIME=$(($(date +%s) + 15))" --spares 1
ends 137 1 'no restart: a start, a step and a save do not fit into the time that the job has left'

# A straggler is replaced by a spare after a save, and not without one.
attempt() {
  row $((5 * $1))
  [[ $TRIREME_REPLACE_STRAGGLERS == 1 ]] || exit 0
  echo 'warning saved: the run stops to replace node n1, a straggler' >&2
  exit 75
}
begin --spares 1 --exclude-stragglers
ends 0 2 'replacing node n1' 'restart 1 on n2, n3'
[[ $(nodes_of_attempt 1) == n3 && $(nodes_of_attempt 2) == n1 ]] || fail "nodes of the attempts"
begin --spares 1
ends 0 1

# A launcher that waits for a lost node is ended.
attempt() {
  row $((5 * $1))
  (($1 == 1)) || exit 0
  echo '[rank 0 n1] error: Hang: x still waits. Wrote nothing: rank 2 on n2, rank 3 on n2.' >&2
  exec sleep 1000
}
begin --spares 1
ends 0 2 'the launcher still waits 3 s after the failure' 'restart 1 on n1, n3'

# A signal goes to the ranks, and no restart follows.
attempt() { trap 'exit 75' USR1; row 3; touch trains; while :; do sleep 0.05; done; }
for signal in USR1 TERM HUP; do
  begin --spares 1
  begun train 1
  for _ in $(seq 100); do [[ ! -e trains ]] || break; sleep 0.05; done
  kill "-$signal" $supervisor
  ends 75 1
  rm trains
done
# While it restarts, nothing is saved, and its code is that of the signal.
attempt() { row 5; killed n2; }
for signal in USR1:138 TERM:143; do
  begin CHECK_HANGS=yes --spares 1
  begun doctor 3
  kill "-${signal%:*}" $supervisor
  ends "${signal#*:}" 1 'while the run restarts: nothing new is saved'
done
! pgrep -f '^sleep 1000$' >/dev/null || fail "a check is left"

# The supervisor is killed: its launcher gets SIGTERM.
attempt() { row 5; exec sleep 1001; }
begin --spares 1
begun train 1
kill -KILL $supervisor
wait $supervisor || true
for _ in $(seq 100); do pgrep -f '^sleep 1001$' >/dev/null || break; sleep 0.05; done
! pgrep -f '^sleep 1001$' >/dev/null || fail "the launcher outlives its supervisor"
# The next start removes the leftovers, except those of running supervisors and of other hosts.
compgen -G 'out/.supervise-7-*' >/dev/null || fail "the killed supervisor left no files: nothing is tested"
own_start=$(sed -E 's/.*\) //' /proc/$$/stat | cut -d' ' -f20)
mkdir "out/.supervise-8-$supervisor-1" "out/.supervise-8-$$-$own_start" "out/.supervise-9-$supervisor-1"
hostname >"out/.supervise-8-$supervisor-1/host"
hostname >"out/.supervise-8-$$-$own_start/host"
echo elsewhere >"out/.supervise-9-$supervisor-1/host"
attempt() { ls -A out >seen; exit 2; }
: >calls
env PATH="$work/bin:$PATH" SLURM_JOB_ID=7 'SLURM_JOB_NODELIST=n[1-3]' SLURM_NTASKS=6 SLURM_NTASKS_PER_NODE=2 \
  "$TRIREME" supervise --spares 1 -- srun trireme train run.toml >out.txt 2>err.txt || true
[[ $(grep -c '^.supervise-' seen) == 3 ]] && grep -qx ".supervise-8-$$-$own_start" seen &&
  grep -qx ".supervise-9-$supervisor-1" seen || fail "directories at the next start: $(cat seen)"
rm -r out/.supervise-*

refused() {  # refused CODE TEXT ARGUMENTS...
  local status=0
  env PATH="$work/bin:$PATH" "$TRIREME" supervise "${@:3}" >out.txt 2>err.txt || status=$?
  ((status == $1)) || fail "exit code $status, expected $1: supervise ${*:3}"
  grep -qF -- "$2" err.txt || fail "not printed: $2"
}
refused 2 'no command'
refused 2 'bash is no launcher' -- bash trireme train run.toml
refused 2 -n -- srun -n 4 trireme train run.toml
refused 2 'requires --hostfile' -- mpirun trireme train run.toml
refused 5 'within a Slurm job only' -- srun trireme train run.toml
echo a >one_host
refused 2 'leaves none of 1 nodes' --hostfile one_host --spares 1 -- mpirun trireme train run.toml

# Under Open MPI's mpirun, hosts are names of this machine, each with its own.
[[ $("$TRIREME" --version) == *"Open MPI"* ]] || { not_tried "hosts of mpirun: another MPI than Open MPI"; exit 0; }
((EUID == 0)) && unshare -u hostname a 2>/dev/null || { not_tried "hosts of mpirun: needs root and namespaces"; exit 0; }
cat >agent <<'SH'
#!/bin/bash
host=$1
shift
exec unshare -u bash -c "hostname $host; $*"
SH
chmod +x agent
printf 'a slots=1\nb slots=1\nc slots=1\n' >hosts
sed -i '/^\[mesh\]/,$d; s/^global = 10/global = 8/; s/^micro = 5/micro = 1/' run.toml
rm -rf out calls
touch calls
# shellcheck disable=SC2086  # several flags
train_on_hosts() {
  # Ranks of "nodes" that share cores must not spin.
  env TRIREME_FAULT=step.begin:slow,step.begin:slow OMP_NUM_THREADS=1 timeout 100 "$TRIREME" supervise --spares 1 --hostfile hosts -- "$MPIEXEC" $MPIEXEC_FLAGS \
    --mca plm_rsh_agent "$work/agent" --mca plm rsh --mca mpi_yield_when_idle 1 -x OMP_NUM_THREADS "$TRIREME" train run.toml --set "run.output=$1"
}
train_on_hosts usual >out.txt 2>err.txt || fail "mpirun ended with $?"
train_on_hosts killed >out.txt 2>err.txt &
supervisor=$!
for _ in $(seq 400); do (($(cat killed/metrics.jsonl 2>/dev/null | wc -l) < 12)) || break; sleep 0.05; done
for file in /proc/[0-9]*/environ; do
  pid=${file//[^0-9]/}
  if cat "$file" 2>/dev/null | tr '\0' '\n' | grep -qx OMPI_COMM_WORLD_RANK=1 && [[ $(readlink "/proc/$pid/cwd") == "$work" ]]; then
    kill -KILL "$pid"
    break
  fi
done
ends 0 0 'restart 1 on a, c' 'restart 1: step'
python3 - <<'PYTHON' || fail "other losses than those of an undisturbed run"
import json
def read(run): return [(r["step"], r["loss"], r["grad_norm"]) for r in map(json.loads, open(run + "/metrics.jsonl"))]
assert read("usual") == read("killed") and len(read("usual")) == 40
PYTHON
# Every step after the restored one is repeated, and the parts are the time from the first rank's start to the last event.
python3 - killed/goodput.jsonl <<'PYTHON' || fail "goodput"
import json, re, sys
events = [json.loads(line) for line in open(sys.argv[1])]
line = re.search(r"goodput ([0-9.]+)% of ([0-9.]+) s in 2 attempts: (.*)", open("err.txt").read())
failed = next(e for e in events if e["event"] == "failure")
loaded = [e["step"] for e in events if e["event"] == "load"]
assert loaded[0] == 0 and loaded[1] % 5 == 0 and 0 <= failed["step"] - loaded[1] < 10, events
parts = dict(re.findall(r"([a-z ]+|\d+ repeated steps?) ([0-9.]+) s", line.group(3).replace(", ", ",")))
assert f"{failed['step'] - loaded[1]} repeated step" in line.group(3) or failed["step"] == loaded[1], line.group(3)
for part in "detection of failures", "start", "load":
    assert part in parts, (part, parts)
wall = events[-1]["time"] - events[0]["began"]
assert abs(wall - float(line.group(2))) < 0.1, (wall, line.group(2))
lost = sum(map(float, parts.values()))
assert abs(float(line.group(1)) / 100 - (1 - lost / wall)) < 0.05, (parts, line.group(0))
PYTHON
for run in usual killed; do "$TRIREME" export $run/checkpoints/step-00000040 -o weights-$run --dtype fp32 >/dev/null; done
cmp weights-usual/model.safetensors weights-killed/model.safetensors || fail "other weights"
! pgrep -f "^$TRIREME train run.toml --set run.output=killed" >/dev/null || fail "ranks are left"

# A node whose steps are slower is replaced after a save; the weights are those of an undisturbed run.
cat >agent <<'SH'
#!/bin/bash
host=$1
shift
fault=step.begin:slow
[[ $host != b ]] || fault=step.begin:slow,step.begin:slow,step.begin:slow
exec unshare -u env TRIREME_FAULT=$fault bash -c "hostname $host; $*"
SH
timeout 100 "$TRIREME" supervise --exclude-stragglers --spares 1 --hostfile hosts -- "$MPIEXEC" $MPIEXEC_FLAGS \
  --mca plm_rsh_agent "$work/agent" --mca plm rsh --mca mpi_yield_when_idle 1 -x OMP_NUM_THREADS \
  "$TRIREME" train run.toml --set run.output=slow --set train.steps=60 >out.txt 2>err.txt || fail "mpirun ended with $?"
for text in 'node b is a straggler: its own part of steps ' 'restart 1 on a, c'; do
  grep -q "$text" err.txt || fail "not printed: $text"
done
python3 - <<'PYTHON' || fail "the rows of a run with a straggler"
import json
rows = [json.loads(line) for line in open("slow/metrics.jsonl")]
assert [r["step"] for r in rows] == list(range(1, 61))
named = [r["step"] for r in rows if r.get("stragglers") == "b"]
assert named and named[0] <= 50 and named[-1] - named[0] < 10, named
assert all(r["slowest_node_ratio"] > 1.2 for r in rows if r["step"] in named)
PYTHON
"$TRIREME" report slow -o slow.html >/dev/null
grep -q 'node b was a straggler' slow.html || fail "no straggler in the report"
