# SPDX-License-Identifier: Apache-2.0
#
# State after a power failure: everything is flushed to disk before the rename that publishes it, in order, and the rename before
# the next change (tests/support/system_calls). With files of one rank and of two, and with asynchronous saves.
# timeout: 300
# processors: 2
# Fault, saves: power failure -> files and directories are flushed before the rename that publishes them
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

logged="env LD_PRELOAD=$SYSTEM_CALLS SYSTEM_CALLS_LOG=$work/calls"
durable() {  # durable PATTERN COUNT [ORDERED...]
  python3 "$TRIREME_SOURCE/tests/support/system_calls/durable.py" calls "$@" || fail "not durable after: $last"
}

checkpoints=('/checkpoints/step-[0-9]+$' 2 '/shards/dp-[0-9]+-tp-00\.h5$' '/index\.h5$' '/COMMIT$')

# shellcheck disable=SC2086  # several words
launch $logged "$TRIREME" tokenize --tokenizer bytes -o again.bin text.txt
expect_done
durable '/again\.bin$' 1

sed -e 's/^steps = .*/steps = 4/' -e 's/^at_end = .*/every = 2\nkeep = 1/' -i run.toml
for ranks_per_file in 1 2; do
  for async in false true; do
    rm -rf out calls
    # shellcheck disable=SC2086  # several options in one variable
    launch $MPIEXEC $MPIEXEC_FLAGS -n 2 $logged "$TRIREME" train run.toml --set run.export=end \
      --set checkpoint.ranks_per_file=$ranks_per_file --set checkpoint.async=$async
    expect_done
    durable "${checkpoints[@]}"
    (($(grep -c ' fsync .*/\.step-00000004\.partial/shards/dp' calls) >= 2)) || fail 'a rank did not flush what it wrote'
    durable '/model\.safetensors$' 1
    durable '/out/export$' 1
    # The older checkpoint goes when the newer one is there to stay.
    grep -q ' rename .*/step-00000002 .*removed$' calls || fail 'the older checkpoint stayed'
  done
done
# The check itself: each of them missing is noticed (the last ones of each process and file: HDF5 flushes more often).
for line in $(grep -nE ' fsync .*/\.step-00000004\.partial' calls | tac | awk '!seen[$2 $4]++' | cut -d : -f 1); do
  sed "${line}d" calls >fewer
  ! python3 "$TRIREME_SOURCE/tests/support/system_calls/durable.py" fewer "${checkpoints[@]}" >out.txt || fail "unnoticed: $(sed -n "${line}p" calls)"
done
grep -v " fsync $work/out\$" calls >fewer
! python3 "$TRIREME_SOURCE/tests/support/system_calls/durable.py" fewer "${checkpoints[@]}" >out.txt || fail 'unnoticed: out/checkpoints is not flushed in out'
# shellcheck disable=SC2086  # several words
launch $logged "$TRIREME" import out/export -o imported
expect_done
durable '/imported$' 1 '/shards/dp-[0-9]+-tp-00\.h5$' '/index\.h5$' '/COMMIT$'
