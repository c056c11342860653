# SPDX-License-Identifier: Apache-2.0
#
# The best checkpoint (checkpoint.keep_best) cannot be saved, or not be marked. The first rank learns of it before the others: all the same
# the next evaluation offers it on all ranks, and what is marked is on the disk.
# timeout: 300
# processors: 2
# Fault, saves: the best checkpoint cannot be saved or marked -> error; the next evaluation or save tries again
source "$TRIREME_SOURCE/tests/cli/small_run.sh"
source "$TRIREME_SOURCE/tests/train/save/failing_calls.sh"

# The weights stay as they are, and so does the loss: no later one is lower.
sed -e 's/^steps = .*/steps = 100000000/' -e 's/^lr = .*/lr = 1e-30/' -i run.toml
at_start='write 1 1 ENOSPC /shards/'
start --set checkpoint.keep_best=true --set data.validation=tokens.bin --set train.eval_every=20 --set train.eval_steps=1
for ((i = 0; i < 3; ++i)); do
  await err.txt "$(wc -l <err.txt)" 'saving step [0-9]* failed, training continues: .*\[rank 1 on .*No space left on device'
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

# It cannot be marked: the mark of an older one, which may go, does not stay, and the next save tries again.
best() {  # best RULE SETTING...: a run of which each evaluation is better than the one before
  rm -rf out
  rules "$1"
  shift
  # shellcheck disable=SC2086  # several options in one variable
  launch $MPIEXEC $MPIEXEC_FLAGS -n 2 $injected "$TRIREME" train run.toml --set optimizer.lr=1e-2 --set data.validation=tokens.bin \
    --set train.eval_steps=1 --set checkpoint.keep_best=true --set checkpoint.every=4 --set checkpoint.keep=1 --set train.steps=12 "$@"
  expect_done
}
best 'write 0 2 ENOSPC /.best.json' --set train.eval_every=4
grep -q 'the best checkpoint, step 8, cannot be marked, training continues: .*No space left on device' err.txt || fail 'nobody is told'
[[ ! -L out/checkpoints/best && ! -e out/checkpoints/best.json ]] || fail "marked is $(readlink out/checkpoints/best)"
best 'write 0 1-1 ENOSPC /.best.json' --set train.eval_every=8
[[ $(readlink out/checkpoints/best) == step-00000008 && -e out/checkpoints/best/COMMIT ]] || fail 'the next save does not mark it'
# Also where the training waits for its saves: only one that is due ends the run.
best 'write 1 1-1 ENOSPC /shards/' --set train.eval_every=3 --set checkpoint.async=false
grep -q 'saving step 3 failed, training continues: .*\[rank 1 on .*No space left on device' err.txt || fail 'nobody is told'
[[ -e out/checkpoints/best/COMMIT ]] || fail 'no later one is saved'
