# SPDX-License-Identifier: Apache-2.0
#
# Slow disks are no hang, even beyond comm.timeout_seconds: reading the data before the start, and one flush to disk at the end
# (tests/support/system_calls). Both at once, as they only wait.
# timeout: 400
# processors: 1
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

sed 's/^steps = .*/steps = 1/' -i run.toml
slowly() {  # slowly NAME RULE [--set ...]: a run of two ranks in the background
  local name=$1
  echo "$2" >"$name.rules"
  shift 2
  # shellcheck disable=SC2086  # several options in one variable
  $MPIEXEC $MPIEXEC_FLAGS -n 2 env LD_PRELOAD="$SYSTEM_CALLS" SYSTEM_CALLS_RULES="$work/$name.rules" \
    "$TRIREME" train run.toml --set run.output="$name" --set comm.timeout_seconds=10 "$@" >"$name.out" 2>"$name.err" &
}
expect_slow_end() {  # expect_slow_end NAME PID
  last="the run $1"
  status=0
  wait "$2" || status=$?
  cp "$1.out" out.txt
  cp "$1.err" err.txt
  expect_done
}

slowly flush 'fsync 1 1 sleep=20 /shards/' --set checkpoint.at_end=true
flush=$!

files=
for i in 1 2 3 4 5; do
  cp tokens.bin slow-$i.bin
  files+="\"slow-$i.bin\","
done
begin=$SECONDS
slowly start 'read 0 1 sleep=3 /slow-' --set "data.train=[${files%,}]" --set data.format=uint16
start=$!
for ((i = 0; i < 2000; ++i)); do
  [[ ! -d start ]] || break  # run.output is made when the data are in order
  kill -0 $start 2>/dev/null || break
  sleep 0.05
done
echo >start.rules
((SECONDS - begin > 12)) || fail "the look at the data took only $((SECONDS - begin)) s: nothing is shown"

expect_slow_end start $start
expect_slow_end flush $flush
grep -q '^saved flush/checkpoints/step-00000001' out.txt || fail 'the slow save was given up'
