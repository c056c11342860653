# SPDX-License-Identifier: Apache-2.0
#
# Growth with the number of ranks: MPI calls, messages, bytes, file-system calls and C++ objects of start, steps, evaluation,
# save, removal and load are counted on 2, 8 and 32 ranks (tests/support/counted_calls) and must match table.txt: calls exactly.
# Likewise a mesh with every kind of group on 8 ranks. docs/counted-calls.md shows the table.
# timeout: 900
# labels: slow
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

# The same libraries multiply on every machine: some make C++ objects when they are tried, and timing chooses between them.
export TRIREME_CACHE=$work/cache
job 1 train run.toml --set train.steps=1
expect_done
rm -r out
chosen=("$TRIREME_CACHE"/gemm/*.txt)
[[ ${#chosen[@]} == 1 && -s ${chosen[0]} ]] || fail "one choice of libraries is kept: ${chosen[*]}"
echo 'fp32=blocked,blocked,blocked bf16=blocked,blocked,blocked pairs=off' >"${chosen[0]}"

mkdir counts job
mv run.toml tokens.bin* job
cd job
# counted NAME RANKS SETTINGS...: one microbatch a step, whatever the ranks; every collective by MPI, as between nodes.
counted() {
  local counts=$work/counts/$1-$2 ranks=$2 settings=() setting
  shift 2
  mkdir "$counts"
  for setting in "$@"; do settings+=(--set "$setting"); done
  # shellcheck disable=SC2086  # several options in one variable
  launch $MPIEXEC $MPIEXEC_FLAGS -n "$ranks" env COUNTED_ROOT="$work/job" COUNTS="$counts" LD_PRELOAD="$COUNTED_CALLS" \
    "$TRIREME" train run.toml --set batch.global=32 --set batch.micro=$((32 / ranks)) \
    --set comm.backend=mpi --set comm.timeout_seconds=300 --set metrics.report=false --set data.validation=tokens.bin \
    --set train.eval_steps=1 --set checkpoint.async=false "${settings[@]}"
  expect_done
}

sharded=comm.lane_threads=false
for ranks in 2 8 32; do
  counted start $ranks $sharded train.steps=1
  rm -r out
  counted steps $ranks $sharded train.steps=3
  rm -r out
  counted removals $ranks $sharded train.steps=3 checkpoint.every=1 checkpoint.keep=1
  rm -r out
  counted saves $ranks $sharded train.steps=3 checkpoint.every=1 checkpoint.keep=3
  rm -r out
  counted all $ranks $sharded train.steps=3 checkpoint.every=1 checkpoint.keep=3 train.eval_every=3
  counted resume $ranks $sharded train.steps=4
  rm -r out
done
mixed=(mesh.replicate=2 mesh.shard=2 mesh.tensor=2 checkpoint.ranks_per_file=2 batch.micro=8)
counted mixed 8 "${mixed[@]}" train.steps=3 train.eval_every=3 checkpoint.every=3
counted mixed-resume 8 "${mixed[@]}" train.steps=4
python3 "$TRIREME_SOURCE/tests/support/counted_calls/scale.py" "$work/counts" >out.txt 2>err.txt || fail 'other counts than the table lists'
