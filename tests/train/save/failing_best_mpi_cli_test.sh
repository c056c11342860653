# SPDX-License-Identifier: Apache-2.0
#
# The best checkpoint (checkpoint.keep_best) cannot be saved. The first rank hears of it before the others do: all the same
# the next evaluation offers it on all ranks, and what is marked is on the disk.
# timeout: 300
# processors: 2
source "$TRIREME_SOURCE/tests/cli/small_run.sh"
source "$TRIREME_SOURCE/tests/train/save/failing_calls.sh"

# The weights stay as they are, and so does the loss: no later one is lower.
sed -e 's/^steps = .*/steps = 100000000/' -e 's/^lr = .*/lr = 1e-30/' -i run.toml
at_start='write 1 1 ENOSPC /shards/'
start --set checkpoint.keep_best=true --set data.validation=tokens.bin --set train.eval_every=20 --set train.eval_steps=1
for ((i = 0; i < 3; ++i)); do
  await err.txt "$(wc -l <err.txt)" 'saving step [0-9]* failed, training continues: .*rank 1: .*No space left on device'
done
rm rules
await out.txt 0 '^best out/checkpoints/best: step [0-9]*, eval_loss '
for ((i = 0; i < 3; ++i)); do await out.txt "$(wc -l <out.txt)" '^step=.* eval_loss='; done
found=$(cd out/checkpoints && echo *)
[[ $found =~ ^best\ best.json\ (step-[0-9]+)$ && $(readlink out/checkpoints/best) == "${BASH_REMATCH[1]}" ]] ||
  fail "there are $found, the best is $(readlink out/checkpoints/best)"
"$TRIREME" verify out/checkpoints/best >verified.txt || fail 'the best checkpoint is damaged'
kill -USR1 $pid
status=0
wait $pid || status=$?
((status == 75)) || fail "exit code $status"
