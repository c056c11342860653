# SPDX-License-Identifier: Apache-2.0
#
# What grows with the ranks: MPI calls, messages, bytes and file-system calls of start, steps, evaluation, save and load are
# counted on 2, 8 and 32 ranks (tests/support/counted_calls) and must be what its scale.py lists, exactly: for nearly all, the
# same whatever the ranks. docs/scale.md has the numbers.
# timeout: 900
# labels: slow
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

mkdir counts
# counted NAME RANKS OUTPUT SETTINGS...: one microbatch a step, whatever the ranks; every collective by MPI, as between nodes.
counted() {
  local counts=$work/counts/$1-$2 ranks=$2 output=$3 settings=() setting
  shift 3
  mkdir "$counts"
  for setting in "$@"; do settings+=(--set "$setting"); done
  # shellcheck disable=SC2086  # several options in one variable
  launch $MPIEXEC $MPIEXEC_FLAGS -n "$ranks" env COUNTED_ROOT="$work" COUNTS="$counts" LD_PRELOAD="$COUNTED_CALLS" \
    "$TRIREME" train run.toml --set run.output="$output" --set batch.global=32 --set batch.micro=$((32 / ranks)) \
    --set comm.backend=mpi --set comm.lane_threads=false --set comm.timeout_seconds=300 --set metrics.report=false \
    --set data.validation=tokens.bin --set train.eval_steps=1 "${settings[@]}"
  expect_done
}

for ranks in 2 8; do
  counted start $ranks "start$ranks" train.steps=1
  counted steps $ranks "steps$ranks" train.steps=3
  counted evaluation $ranks "evaluation$ranks" train.steps=3 train.eval_every=3
  counted save $ranks "save$ranks" train.steps=3 checkpoint.at_end=true
  for keep in 1 2; do
    counted keep$keep $ranks "keep$keep-of-$ranks" train.steps=2 checkpoint.every=1 checkpoint.keep=$keep checkpoint.async=false
  done
done
for ranks in 2 8 32; do
  counted all $ranks "all$ranks" train.steps=3 train.eval_every=3 checkpoint.at_end=true
  counted resume $ranks "all$ranks" train.steps=4
done
python3 "$TRIREME_SOURCE/tests/support/counted_calls/scale.py" counts >out.txt 2>err.txt || fail 'something else grows with the ranks'
cat out.txt
