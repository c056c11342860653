# SPDX-License-Identifier: Apache-2.0
#
# The doctor writes what it measured as a machine file, which plan takes; a file that is there stays.
# timeout: 400
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

job 2 doctor --measure -o here.toml
expect_done
grep -q "^written: here.toml; use it: trireme plan RUN.toml --ranks 2 --machine here.toml" out.txt || fail "what to do next"
grep -q '^grade = "measured"' here.toml || fail "grade"
grep -q '^gpus_per_node = 2 ' here.toml || fail "ranks of a node"
for key in peak_tflops attention_tflops memory_tb_s bandwidth_gb_s memory_gb_s; do
  grep -qE "^$key = [0-9.e+-]*[1-9]" here.toml || fail "$key is not measured"
done
program plan run.toml --ranks 2 --machine here.toml
expect_done
grep -q "(.*, 2 ranks of .* measured 20..-..-..; links between nodes are a guess): measured" out.txt ||
  fail "what the numbers come from"

# An existing file of measurements is not overwritten, which is checked before measuring.
cp here.toml kept.toml
job 2 doctor --measure -o here.toml
((status == 2)) || fail "exit code $status"
grep -q "here.toml exists; move it away, or name another file with -o" err.txt || fail "refusal"
cmp -s here.toml kept.toml || fail "the file has changed"
program doctor --measure -o nowhere/here.toml
((status == 2)) || fail "exit code $status"
grep -q "there is no directory nowhere" err.txt || fail "the directory"
