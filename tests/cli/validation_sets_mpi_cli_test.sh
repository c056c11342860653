# SPDX-License-Identifier: Apache-2.0
#
# Named validation sets, each with its own loss; the checkpoint with the lowest one is kept, resumes, exports and
# generates, with a key/value cache as without.
# timeout: 300
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

head -c 3000 text.txt >first.txt
head -c 3000 text.txt | tr a-z n-za-m >other.txt  # letters that mean something else: never learned
for name in first other; do "$TRIREME" tokenize --tokenizer bytes -o $name.bin $name.txt >/dev/null; done
cat >>run.toml <<'TOML'
[data.validation]
known = "first.bin"
other = ["other.bin", "other.bin"]
TOML

sets=(--set train.eval_every=4 --set checkpoint.keep_best=known --set checkpoint.every=4 --set checkpoint.keep=1 --set metrics.tensorboard=true)
job 2 train run.toml "${sets[@]}" --set train.steps=8
expect_done
grep -q 'step=8 eval_loss=.* eval_loss.known=.* eval_loss.other=.* eval_tokens=' out.txt || fail 'the losses of the sets are not printed'
json_check '
evals = [r for r in rows if "eval_loss" in r]
assert [r["step"] for r in evals] == [4, 8], evals
for r in evals:
    known, other = r["eval_losses"]["known"], r["eval_losses"]["other"]
    assert set(r["eval_losses"]) == {"known", "other"} and other > known, r
    assert known < r["eval_loss"] < other and abs(r["eval_loss"] - (known + 2 * other) / 3) < 0.02, "all targets alike"
' out/metrics.jsonl
grep -q 'loss/validation/other' out/tensorboard/events.* || fail 'TensorBoard has no loss of the set'
program report out -o report.html
expect_done
grep -q 'validation, other' report.html || fail 'the report has no curve of the set'

# Then the loss rises: the best checkpoint is kept in addition to the newest.
[[ $(readlink out/checkpoints/best) == step-00000008 ]] || fail "best is $(readlink out/checkpoints/best), not step 8"
job 2 train run.toml "${sets[@]}" --set train.steps=20 --set optimizer.lr=0.7
expect_done
[[ $(echo out/checkpoints/step-*) == "out/checkpoints/step-00000008 out/checkpoints/step-00000020" ]] ||
  fail "kept: $(echo out/checkpoints/step-*)"
[[ $(readlink out/checkpoints/best) == step-00000008 ]] || fail 'a worse checkpoint became the best one'
json_check '
losses = {r["step"]: r["eval_losses"]["known"] for r in rows if "eval_losses" in r}
assert min(losses, key=losses.get) == 8, losses
best = json.load(open("out/checkpoints/best.json"))
assert best == {"step": 8, "eval_loss": losses[8], "eval_tokens": 3000, "validation": best["validation"], "checkpoint": "step-00000008"}, best
assert len(best["validation"]) == 16, best
' out/metrics.jsonl

# It is a checkpoint as any other: exported, resumed on another mesh, generated from.
for command in inspect verify "export -o best_export"; do
  # shellcheck disable=SC2086  # options in one word
  program $command out/checkpoints/best
  expect_done
done
job 4 train run.toml "${sets[@]}" --set train.steps=12 --set run.output=again --set checkpoint.resume=out/checkpoints/best
expect_done
grep -q 'resuming from out/checkpoints/best: step 8' out.txt err.txt || fail 'it did not resume from the best one'
[[ $(readlink again/checkpoints/best) == step-00000012 ]] || fail 'the resumed run does not mark its own best checkpoint'

for model in out/checkpoints/best best_export; do
  for ranks in 1 2; do
    for cache in "" --no-cache; do
      # shellcheck disable=SC2086  # nothing, or an option
      job $ranks generate $model --prompt "the ship has" --prompt "oars and wind" --tokens 60 $cache
      expect_done
      mv out.txt "printed.$ranks$cache.txt"
      cmp "printed.1.txt" "printed.$ranks$cache.txt" || fail "another text of $model on $ranks ranks ${cache:-with the cache}"
    done
  done
done

# A kill between the mark and the link is put right by the next start.
TRIREME_FAULT=ckpt.best:kill:0 job 2 train run.toml "${sets[@]}" --set run.output=killed --set train.steps=4
((status != 0)) || fail 'it was not killed'
[[ -e killed/checkpoints/best.json && ! -e killed/checkpoints/best ]] || fail 'it was killed elsewhere'
job 2 train run.toml "${sets[@]}" --set run.output=killed --set train.steps=8
expect_done
[[ -e killed/checkpoints/best/COMMIT ]] || fail 'there is no link to the best one'

# A mark that cannot be written ends no training.
mkdir -p unmarked/checkpoints/best.json/in_the_way
job 2 train run.toml "${sets[@]}" --set run.output=unmarked --set train.steps=4
expect_done
grep -q 'the best checkpoint, step 4, cannot be marked, training continues: .*best.json' err.txt || fail 'nobody is told'
[[ -e unmarked/checkpoints/step-00000004/COMMIT ]] || fail 'the checkpoint is gone'
