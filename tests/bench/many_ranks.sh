#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Many ranks on few cores: starts RANKS ranks, trains 3 steps, saves; half as many load that, train one step and stop. Prints
# the seconds of both jobs; fails when they take longer than LIMIT together (0: no limit).
#
#   tests/bench/many_ranks.sh PROGRAM [RANKS [LIMIT]]        64 ranks, 120 s
#
# MPIEXEC (default mpirun) and MPIEXEC_FLAGS (default --oversubscribe --bind-to none) start the ranks.
set -euo pipefail

program=$(realpath "$1")
ranks=${2:-64}
limit=${3:-120}
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-many-ranks.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
export OMP_NUM_THREADS=1

for i in $(seq 4000); do echo "The ship has $i oars and $((i * 7 % 1000)) sails."; done >text.txt
"$program" tokenize --tokenizer bytes -o tokens.bin text.txt >/dev/null
cat >run.toml <<TOML
[run]
output = "out"
[model]
vocab_size = 257
hidden_size = 64
intermediate_size = 128
layers = 2
heads = 4
kv_heads = 2
[data]
train = "tokens.bin"
seq_len = 32
tokenizer = "bytes"
[batch]
global = $ranks
micro = 1
[checkpoint]
every = 3
[train]
steps = 3
TOML

job() { # job RANKS ARGUMENTS...: seconds of a training
  local count=$1 begin=$EPOCHREALTIME
  shift
  # shellcheck disable=SC2086  # several flags in one variable
  "${MPIEXEC:-mpirun}" ${MPIEXEC_FLAGS:---oversubscribe --bind-to none} -n "$count" "$program" train run.toml "$@" >log.txt 2>&1 ||
    { cat log.txt >&2; exit 1; }
  seconds=$(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $begin }")
}

job "$ranks"
first=$seconds
[[ -d out/checkpoints/step-00000003 ]] || { echo "no checkpoint of $ranks ranks" >&2; exit 1; }
job $((ranks / 2)) --set train.steps=4
grep -q '"step":4' out/metrics.jsonl || grep -q '"step": 4' out/metrics.jsonl || { echo "$((ranks / 2)) ranks did not go on" >&2; exit 1; }
echo "$ranks ranks: start, 3 steps and a save $first s; $((ranks / 2)) ranks: start, load, a step and a save $seconds s"
awk "BEGIN { exit !($limit == 0 || $first + $seconds < $limit) }" || { echo "more than $limit s" >&2; exit 1; }
