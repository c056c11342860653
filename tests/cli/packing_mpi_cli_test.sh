# SPDX-License-Identifier: Apache-2.0
#
# data.packing = "best_fit": the loss of a packed run is the mean over the tokens of its documents, which do not see each
# other; curves are equal on any number of ranks, with shuffle, and after a restart on another number.
# timeout: 300
# processors: 2
source "$TRIREME_SOURCE/tests/cli/small_run.sh"
export TRIREME_CACHE=$work/cache

python3 - <<'PYTHON'
import json, random
random.seed(5)
words = open("text.txt").read().split()
def write(name, documents): open(name, "w").write("".join(json.dumps({"text": d}) + "\n" for d in documents))
def some(count, most): return [" ".join(random.choices(words, k=random.randrange(1, most))) for _ in range(count)]
short = ["the ship has three banks", "oars", "sails to the island with wind", "and of the oars has wind"]
write("short.jsonl", short)
for i, document in enumerate(short): write(f"short{i}.jsonl", [document])
write("web.jsonl", some(400, 14))
write("code.jsonl", some(200, 30))
PYTHON
for name in short short0 short1 short2 short3 web code; do
  program tokenize --tokenizer bytes --field text -o $name.bin $name.jsonl
  expect_done
done

# Rows of packed documents against each document alone, whose first token is no target.
still=(--set optimizer.lr=0 --set train.steps=1 --set model.init_std=0.3 --set data.shuffle=false)
packed=(--set data.packing=best_fit)
for i in 0 1 2 3; do
  program train run.toml "${still[@]}" --set run.output=alone$i --set data.train=short$i.bin --set batch.global=1 --set batch.micro=1 \
    --set data.seq_len=$(($(stat -c %s short$i.bin) / 2 - 1))
  expect_done
done
tokens=$(($(stat -c %s short.bin) / 2))
for ranks in 1 2; do  # one row of all; two rows
  job "$ranks" train run.toml "${still[@]}" "${packed[@]}" --set run.output=rows"$ranks" --set data.train=short.bin \
    --set batch.global="$ranks" --set batch.micro=1 --set data.seq_len=$((tokens / ranks + 13))
  expect_done
done
cat alone{0,1,2,3}/metrics.jsonl rows{1,2}/metrics.jsonl >all.jsonl
json_check '
alone, packed = rows[:4], rows[4:]
targets = sum(r["target_tokens"] for r in alone)
mean = sum(r["loss"] * r["target_tokens"] for r in alone) / targets
for r, ranks in zip(packed, (1, 2)):
    assert r["target_tokens"] == targets and abs(r["loss"] - mean) < 1e-6, (mean, targets, r)
    length = (targets + 4) // ranks + 13
    assert r["padding_tokens"] == ranks * length - targets - 4 > 0, r
    processed = ranks * length - r["padding_tokens"]
    assert math.isclose(r["tokens_per_second"], processed / r["step_seconds"], rel_tol=1e-9), r
    assert r["packing"]["cut"] == 0 and r["packing"]["documents"] == 4, r
' all.jsonl

# The same curve on 1, 2 and 4 ranks, and after a stop on another number; the validation sets too.
mix='[{path="web.bin",weight=1},{path="code.jsonl",weight=2,epochs=9}]'
run=("${packed[@]}" --set data.train="$mix" --set data.validation='{ web = "web.bin", code = "code.jsonl" }' --set train.eval_every=6
  --set train.steps=12 --set data.seq_len=64 --set checkpoint.every=6 --set optimizer.lr=1e-3)
for ranks in 1 2 4; do
  job "$ranks" train run.toml "${run[@]}" --set run.output=curve"$ranks" --set batch.micro=$((16 / ranks))
  expect_done
  grep -qE '^packing  best fit: [0-9.]+% padding, [0-9.]+% of 600 documents cut \(concatenated: [1-9][0-9.]*%\)' out.txt || fail 'no statistics'
done
job 2 train run.toml "${run[@]}" --set run.output=stopped --set train.steps=6
expect_done
cp -r stopped other
job 4 train run.toml "${run[@]}" --set run.output=stopped
expect_done
grep -q 'resuming from' err.txt || fail 'it did not resume'
for name in curve2 curve4 stopped; do
  cat curve1/metrics.jsonl $name/metrics.jsonl >both.jsonl
  json_check '
half = len(rows) // 2
assert half == 14, half
for a, b in zip(rows[:half], rows[half:]):
    for key in ("loss", "eval_loss", "grad_norm"):
        if key in a: assert math.isclose(a[key], b[key], rel_tol=1e-5), (a, b)
    assert a.get("target_tokens") == b.get("target_tokens") and a.get("padding_tokens") == b.get("padding_tokens"), (a, b)
    if "eval_losses" in a: assert all(math.isclose(x, b["eval_losses"][k], rel_tol=1e-5) for k, x in a["eval_losses"].items()), (a, b)
' both.jsonl
done
program report curve1 -o report.html
expect_done
grep -q 'documents cut if concatenated' report.html || fail 'the report has no statistics'

# evaluate packs as the run of the checkpoint, unless --packing is given.
for ranks in 1 3; do
  job "$ranks" evaluate curve2/checkpoints/step-00000012 --data web.bin --seq-len 64
  expect_done
  grep -q ' packing=best_fit ' out.txt || fail 'the setting is not printed'
  loss=$(grep -oE ' loss=[^ ]+' out.txt)
  tail -n 1 curve2/metrics.jsonl >last.jsonl
  json_check "assert abs(rows[0]['eval_losses']['web'] - ${loss#*=}) < 2e-6, rows" last.jsonl
done
program evaluate curve2/checkpoints/step-00000012 --data web.bin --seq-len 64 --packing concatenate
expect_done
! grep -q 'packing=' out.txt || fail 'it packs'
program evaluate curve2/checkpoints/step-00000012 --data web.bin --packing best_fit --document-mask false
expect_end 2 'packed documents do not see each other'

# Another packing, or other document ends, are other data.
job 2 train run.toml "${run[@]}" --set run.output=other --set data.packing=concatenate
expect_end 4 'was trained on other data' 'data.packing' 'best_fit'
job 2 train run.toml "${run[@]}" --set run.output=other --set data.packing=concatenate --set checkpoint.data=restart
expect_done
rm web.bin.meta web.bin.ends
job 2 train run.toml "${run[@]}" --set run.output=none
expect_end 2 'where the documents of web.bin end is not known' 'data.packing = "concatenate"'
[[ ! -e none ]] || fail 'a refused start wrote'
program train run.toml "${packed[@]}" --set data.document_mask=false
expect_end 2 'data.document_mask' 'contradicts data.packing'

# trireme data: both packings, and rows without their padding.
program data run.toml "${packed[@]}" --set data.train=code.bin --set data.seq_len=64 --set data.shuffle=false --samples 232
expect_done
grep -qE '^packing +documents +best_fit: rows +padding +cut +concatenate: rows +cut$' out.txt || fail 'no table of packings'
grep -qE '^code.bin +200 +[0-9]+ +[0-9.]+% +[0-9.]+% +[0-9]+ +[1-9][0-9.]*%' out.txt || fail 'no row of the source'
grep -qE '^sample [0-9]+: [0-9]+ of 64 targets count, [0-9]+ tokens of padding$' out.txt || fail 'padding is not counted'
