# SPDX-License-Identifier: Apache-2.0
#
# Sourced by the tests here: makes a directory with text, tokens and a run file of a model that trains in a second, and defines
# functions that run jobs and check their ends. Environment: TRIREME, MPIEXEC, MPIEXEC_FLAGS.
# shellcheck shell=bash

work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-cli-test.XXXXXX")
source "$TRIREME_SOURCE/tests/support/skips.sh"
cd "$work"

# Sentences over a few words: a tiny model learns their letters at once.
awk 'BEGIN { split("the ship has three banks of oars and sails to the island with wind", w, " ")
             for (i = 0; i < 9000; ++i) { seed = (seed * 1103515245 + 12345) % 2147483648
                                          printf "%s%s", w[1 + int(seed / 65536) % 14], (i % 9 == 8) ? ".\n" : " " } }' >text.txt
"$TRIREME" tokenize --tokenizer bytes -o tokens.bin text.txt >/dev/null

cat >run.toml <<'TOML'
[run]
name = "small"
output = "out"
[model]
vocab_size = 257
hidden_size = 32
intermediate_size = 64
layers = 2
heads = 4
kv_heads = 2
[data]
train = "tokens.bin"
seq_len = 32
tokenizer = "bytes"
[batch]
global = 16
micro = 2
[precision]
compute = "fp32"
[optimizer]
lr = 1e-2
[lr]
schedule = "constant"
[train]
steps = 6
[checkpoint]
at_end = false
[comm]
timeout_seconds = 60
TOML

fail() {
  printf 'FAILED: %s\n--- standard output\n' "$*"
  tail -n 40 out.txt 2>/dev/null || true
  printf -- '--- standard error\n'
  tail -n 40 err.txt 2>/dev/null || true
  exit 1
}

# program ARGUMENTS: runs trireme alone; sets status, seconds, out.txt and err.txt.
program() { launch "$TRIREME" "$@"; }

# job RANKS ARGUMENTS: the same under mpirun.
job() {
  local ranks=$1
  shift
  # shellcheck disable=SC2086  # several options in one variable
  launch $MPIEXEC $MPIEXEC_FLAGS -n "$ranks" "$TRIREME" "$@"
}

launch() {
  local begin=$SECONDS
  last="$*"
  status=0
  timeout 300 "$@" >out.txt 2>err.txt || status=$?
  # shellcheck disable=SC2034  # used by the tests that source this file
  seconds=$((SECONDS - begin))
}

# beside NAME RANKS ARGUMENTS...: starts a job in the background, for those that mostly wait; its run.output is NAME. ended NAME: waits
# for it and sets the same as `job`: status, seconds, out.txt, err.txt and out. counted: a prefix of the program's command ("env ...").
counted=
declare -A job_of began_at
beside() {
  local name=$1 ranks=$2
  shift 2
  began_at[$name]=$SECONDS
  # shellcheck disable=SC2086  # several options in one variable
  timeout 300 $MPIEXEC $MPIEXEC_FLAGS -n "$ranks" $counted "$TRIREME" "$@" --set run.output="$name" >"$name.out" 2>"$name.err" &
  job_of[$name]=$!
}
ended() {
  last="the job $1"
  status=0
  wait "${job_of[$1]}" || status=$?
  # shellcheck disable=SC2034  # used by the tests that source this file
  seconds=$((SECONDS - began_at[$1]))
  mv "$1.out" out.txt
  mv "$1.err" err.txt
  rm -rf out
  [[ ! -e $1 ]] || mv "$1" out
}

# expect_soon: it ended long before a watchdog (comm.timeout_seconds) would have ended it.
expect_soon() { ((seconds < 60)) || fail "it took $seconds s: $last"; }

expect_done() { ((status == 0)) || fail "exit code $status of: $last"; }

# expect_end CODE TEXT...: it ended with CODE and exactly one message of ours, which has every TEXT in it.
expect_end() {
  local code=$1 ours
  shift
  ((status == code)) || fail "exit code $status, expected $code, of: $last"
  ours=$(grep -cE '^(\[rank [0-9]+ |trireme: error: )' err.txt || true)
  ((ours == 1)) || fail "$ours messages of ours, expected 1, of: $last"
  # A message of several lines, up to the launcher's or those of other ranks, which may arrive after it.
  ours=$(awk '/^(\[rank [0-9]+ |trireme: error: )/ { on = 1 } /^(-----|[0-9][0-9][0-9][0-9]-)/ { on = 0 } on' err.txt)
  local text
  for text in "$@"; do [[ $ours == *"$text"* ]] || fail "no \"$text\" in the message of: $last"; done
}

expect_no_output() { [[ ! -e out ]] || fail "run.output was made by: $last"; }

# json_check PYTHON-CODE FILE...: the code sees `rows`, the JSON lines of the first file, and `files`, their names. Of
# metrics.jsonl the keys that are only written when they change are there in every row, those of evaluations in theirs alone.
json_check() {
  local code=$1
  shift
  python3 -c "import json, math, sys
files = sys.argv[1:]
rows = [json.loads(line) for line in open(files[0])] if files[0].endswith('.jsonl') else [json.load(open(files[0]))]
last = {}
for row in rows:
    if 'loss' in row:
        last = {k: row.get(k, last.get(k)) for k in ('flop_rule', 'gemm', 'device', 'version', 'memory_peak_op', 'comm_bytes', 'comm_calls')}
        row.update(last)
        for key in [k for k in row if k.startswith('eval_') and row[k] is None or k == 'eval_losses']: del row[key]
$code" "$@" || fail "the check of $1 after: $last"
}
