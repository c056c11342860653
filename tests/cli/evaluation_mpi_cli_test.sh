# SPDX-License-Identifier: Apache-2.0
#
# Sums of an evaluation: the same sequences on any ranks, the targets of the run, the tails of files; a mean over no target and a
# loss that is not finite are no numbers; the best checkpoint is chosen among losses over the same targets.
# timeout: 400
# Fault, numerics: `evaluate` of weights that are not finite -> exit code 6
# Fault, numerics: a validation set without counted targets -> null in `metrics.jsonl`, `none` in the log, never best;
#   `evaluate`: exit code 3
# Fault, numerics: other validation data or target settings after a resume -> the comparison for the best checkpoint
#   begins anew
# Fault, numerics: `evaluate` of a run that ignores targets or masks documents; the last partial row -> as in the run;
#   every target once
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

head -c 4000 text.txt >valid.txt
"$TRIREME" tokenize --tokenizer bytes -o valid.bin valid.txt >/dev/null
# value KEY: of the line in out.txt.
value() { grep -oE "(^| )$1=[^ ]+" out.txt | head -n 1 | cut -d= -f2; }
# near A B: equal to 1e-5.
near() { python3 -c 'import sys; a, b = map(float, sys.argv[1:]); sys.exit(abs(a - b) > 1e-5)' "$1" "$2"; }
last_eval='print(*[(lambda r: "%.7f %d" % (r["eval_loss"], r["eval_tokens"]))(r) for r in map(json.loads, open(sys.argv[1])) if "loss" not in r][-1:])'
evaluated() { python3 -c "import json, sys; $last_eval" "$1/metrics.jsonl"; }

# train.eval_steps counts batches of batch.global sequences, whatever ranks and microbatches there are.
settings=(--set train.steps=1 --set train.eval_every=1 --set train.eval_steps=2 --set data.validation=valid.bin)
for shape in "1 2" "1 16" "2 2" "4 1" "3 1"; do
  global=16
  [[ $shape != 3* ]] || global=15
  job "${shape% *}" train run.toml "${settings[@]}" --set run.output=steps --set run.overwrite=true --set batch.micro="${shape#* }" --set batch.global=$global
  expect_done
  [[ $global == 16 ]] || { [[ $(evaluated steps) == *" $((2 * 15 * 32))" ]] || fail "eval_tokens of batch.global 15: $(evaluated steps)"; continue; }
  [[ -n ${first:-} ]] || first=$(evaluated steps)
  [[ $(evaluated steps) == *" $((2 * 16 * 32))" ]] || fail "eval_tokens on $shape: $(evaluated steps)"
  near "${first% *}" "$(evaluated steps | cut -d' ' -f1)" || fail "eval_loss on $shape: $(evaluated steps), not $first"
done
python3 - <<'PYTHON' || fail 'the first row of a start does not name the keys of evaluations'
import json
rows = [json.loads(line) for line in open("steps/metrics.jsonl")]
assert [rows[0].get(key, 0) for key in ("eval_loss", "eval_tokens", "eval_seconds")] == [None] * 3, rows[0]
PYTHON

# evaluate counts what the run counted, the tail of the file included: ignored targets and masked documents are the
# checkpoint's; an export and options decide otherwise.
python3 - <<'PYTHON'
import array
ids = array.array("H", open("valid.bin", "rb").read())
for at in range(40, len(ids), 90): ids[at] = 256  # documents
open("documents.bin", "wb").write(ids.tobytes())
PYTHON
run=(--set data.ignore_targets=[32,101] --set data.document_mask=true --set data.document_end=256)
job 2 train run.toml "${run[@]}" --set train.steps=8 --set train.eval_every=8 --set data.validation=documents.bin \
  --set run.output=counted --set checkpoint.at_end=true --set run.export=end
expect_done
read -r loss targets <<<"$(evaluated counted)"
checkpoint=counted/checkpoints/step-00000008
for ranks in 1 3; do
  job $ranks evaluate $checkpoint --data documents.bin --seq-len 32
  expect_done
  [[ $(value targets) == "$targets" ]] && near "$(value loss)" "$loss" || fail "evaluate counts otherwise than the run: $loss over $targets"
  grep -q ' ignore_targets=32,101 document_mask=true document_end=256 ' out.txt || fail 'the settings are not printed'
done
all=$(($(stat -c %s documents.bin) / 2 - 1))
program evaluate $checkpoint --data documents.bin --seq-len 32 --ignore-targets none --document-mask false
expect_done
[[ $(value targets) == "$all" ]] || fail "not all of $all targets"
plain=$(value loss)
program evaluate counted/export --data documents.bin --seq-len 32
expect_done
[[ $(value targets) == "$all" ]] && near "$(value loss)" "$plain" || fail "an export: not $plain over $all targets"
program evaluate counted/export --data documents.bin --seq-len 32 --ignore-targets 32,101 --document-mask true --document-end 256
expect_done
[[ $(value targets) == "$targets" ]] && near "$(value loss)" "$loss" || fail 'options differ from the run of the checkpoint'
program evaluate counted/export --data documents.bin --ignore-targets 32,x
expect_end 2 '--ignore-targets 32,x: expected token ids'

# Every target counts once, in rows of any length, also of a file that is shorter than a row.
head -c 60 valid.bin >short.bin
for seq_len in 7 32 1000; do
  job 2 evaluate counted/export --data short.bin --data documents.bin --seq-len $seq_len --micro 2
  expect_done
  [[ $(grep -oE 'targets=[0-9]+' out.txt | paste -sd' ') == "targets=29 targets=$all" ]] || fail "targets in rows of $seq_len"
done
program evaluate counted/export --data documents.bin --seq-len 32 --limit 3
expect_done
grep -q " sequences=3/$(((all + 31) / 32)) targets=96 " out.txt || fail '--limit 3'

# A mean over no target is refused, and is null in a run, never the best; other sets go on.
head -c $(($(stat -c %s valid.bin) / 2)) /dev/zero >unmarked.bin.mask
cp valid.bin unmarked.bin
program evaluate counted/export --data unmarked.bin --seq-len 32
expect_end 3 'unmarked.bin: none of its targets counts by its .mask file'
cat run.toml - >sets.toml <<'TOML'
[data.validation]
known = "valid.bin"
none = "unmarked.bin"
TOML
job 2 train sets.toml --set train.steps=4 --set train.eval_every=2 --set checkpoint.keep_best=none --set run.output=none --set metrics.tensorboard=true
expect_done
(($(grep -c 'no target of the validation set "none" counts' err.txt) == 1)) || fail 'one warning'
[[ ! -e none/checkpoints/best.json ]] || fail 'a mean over no target is the best one'
python3 - <<'PYTHON' || fail 'null in metrics.jsonl'
import json
evals = [r for r in map(json.loads, open("none/metrics.jsonl")) if "loss" not in r]
assert len(evals) == 2 and all(r["eval_losses"]["none"] is None and r["eval_loss"] == r["eval_losses"]["known"] for r in evals), evals
PYTHON
! grep -aq 'loss/validation/none' none/tensorboard/events.* || fail 'TensorBoard has a point'

# Other validation data begin the choice of the best checkpoint anew; more steps of the same data do not.
best=(--set checkpoint.keep_best=true --set checkpoint.keep=1 --set train.eval_every=2 --set run.output=best --set checkpoint.every=2)
job 2 train run.toml "${best[@]}" --set data.validation=valid.bin --set train.steps=4
expect_done
before=$(readlink best/checkpoints/best)
job 1 train run.toml "${best[@]}" --set data.validation=valid.bin --set train.steps=6 --set optimizer.lr=0.5
expect_done
[[ $(readlink best/checkpoints/best) == "$before" ]] && ! grep -q 'begins anew' err.txt || fail 'the same data on other ranks begin anew'
tr 'a-z' 'n-za-m' <valid.txt >turned.txt
"$TRIREME" tokenize --tokenizer bytes -o turned.bin turned.txt >/dev/null
job 1 train run.toml "${best[@]}" --set data.validation=turned.bin --set train.steps=8 --set optimizer.lr=0.5
expect_done
grep -q "checkpoint.keep_best begins anew: .*step ${before#step-0000000}, is over" err.txt || fail 'nothing is said'
[[ $(readlink best/checkpoints/best) == step-00000008 ]] || fail "best is $(readlink best/checkpoints/best)"

# A loss that is not finite is an error.
cp -r counted/export broken
python3 - <<'PYTHON'
data = bytearray(open("broken/model.safetensors", "rb").read())
data[-4:] = b"\x00\x00\xc0\x7f"
open("broken/model.safetensors", "wb").write(data)
PYTHON
echo '{"context": "the ship", "endings": ["has", "is"], "label": 0}' >questions.jsonl
for what in "--data valid.bin" "--choices questions.jsonl"; do
  # shellcheck disable=SC2086  # two words
  job 2 evaluate broken --seq-len 32 $what
  expect_end 6 'nan'
done
program import broken -o broken-checkpoint
expect_done
grep -qE 'warning .*: 1 of [0-9]+ values are not finite' err.txt || fail 'import does not name the parameter'
