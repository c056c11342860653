# SPDX-License-Identifier: Apache-2.0
#
# Evaluations of a run: bits per byte of each validation set and accuracies of multiple-choice questions are those of
# `trireme evaluate`, on any mesh and after a restart.
# timeout: 300
# processors: 2
source "$TRIREME_SOURCE/tests/cli/small_run.sh"
export TRIREME_CACHE=$work/cache

python3 - <<'PYTHON'
import json, random
random.seed(3)
words = open("text.txt").read().split()
def questions(name, count):
    with open(name, "w") as file:
        for _ in range(count):
            at = random.randrange(len(words) - 10)
            endings = [" ".join(random.choices(words, k=3)) for _ in range(4)]
            label = random.randrange(4)
            endings[label] = " ".join(words[at + 5:at + 8])
            print(json.dumps({"context": " ".join(words[at:at + 5]), "endings": endings, "label": label}), file=file)
questions("ships.jsonl", 30)
questions("more.jsonl", 20)
text = open("text.txt").read()
open("web.txt", "w").write(text[:3000])
open("code.txt", "w").write(text[3000:5000].upper())
PYTHON
for name in web code; do
  program tokenize --tokenizer bytes -o $name.bin $name.txt
  expect_done
done

run=(--set data.validation='{ web = "web.bin", code = "code.bin" }' --set data.choices='{ ships = ["ships.jsonl", "more.jsonl"], few = "more.jsonl" }'
  --set train.eval_every=3 --set train.choices_every=6 --set train.choices_limit=40 --set train.steps=12 --set checkpoint.every=6 --set optimizer.lr=3e-3)
job 1 train run.toml "${run[@]}" --set run.output=one
expect_done
grep -qE 'step=6 eval_loss=.* bits_per_byte=[0-9.]+ accuracy.(ships|few)=0\.[0-9]+ accuracy_norm' out.txt || fail 'the scores are not printed'
job 2 train run.toml "${run[@]}" --set run.output=two
expect_done
job 2 train run.toml "${run[@]}" --set run.output=tensor --set mesh.tensor=2
expect_done
job 4 train run.toml "${run[@]}" --set run.output=both --set mesh.pipeline=2 --set mesh.context=2
expect_done
job 2 train run.toml "${run[@]}" --set run.output=stopped --set train.steps=6
expect_done
job 1 train run.toml "${run[@]}" --set run.output=stopped
expect_done
for name in two tensor both stopped; do
  cat one/metrics.jsonl $name/metrics.jsonl >pair.jsonl
  json_check '
evaluations = [r for r in rows if "loss" not in r]
half = len(evaluations) // 2
assert half == 4, half
for a, b in zip(evaluations[:half], evaluations[half:]):
    assert math.isclose(a["eval_bits_per_byte"], b["eval_bits_per_byte"], rel_tol=1e-5), (a, b)
    for name, bits in a["eval_bits_per_byte_of_sets"].items(): assert math.isclose(bits, b["eval_bits_per_byte_of_sets"][name], rel_tol=1e-5), (a, b)
    assert ("eval_choices" in a) == ("eval_choices" in b) == (a["step"] % 6 == 0), (a, b)
    if "eval_choices" in a:
        assert a["eval_choices"]["ships"]["questions"] == 40 and a["eval_choices"]["few"]["questions"] == 20, a
        for name, scores in a["eval_choices"].items():  # rounding may turn a close one
            assert abs(scores["accuracy"] - b["eval_choices"][name]["accuracy"]) < 1.5 / scores["questions"], (a, b)
' pair.jsonl
done

# The numbers of evaluate on the checkpoint.
head -n 20 more.jsonl >few.jsonl
program evaluate one/checkpoints/step-00000012 --data web.bin --data code.bin --seq-len 32 --choices few.jsonl
expect_done
cp out.txt evaluated.txt
tail -n 1 one/metrics.jsonl >last.jsonl
json_check '
import re
said = [dict(re.findall(r"(\w+)=(\S+)", line)) for line in open(files[1])]
for line, name in zip(said, ("web", "code")):
    assert line["bytes_of"] == "text" and abs(float(line["bits_per_byte"]) - rows[0]["eval_bits_per_byte_of_sets"][name]) < 2e-6, (line, rows)
whole = sum(float(l["bits_per_byte"]) * float(l["bytes"]) for l in said[:2]) / sum(float(l["bytes"]) for l in said[:2])
assert abs(whole - rows[0]["eval_bits_per_byte"]) < 2e-6, (said, rows)
for key in ("accuracy", "accuracy_norm", "accuracy_stderr"):
    assert abs(float(said[2][key]) - rows[0]["eval_choices"]["few"][key]) < 1e-6, (said, rows)
' last.jsonl evaluated.txt

# A part of the text: its bytes are those of the decoded tokens.
job 2 train run.toml "${run[@]}" --set run.output=part --set train.eval_steps=2 --set train.steps=3
expect_done
json_check 'r = [r for r in rows if "loss" not in r][0]
assert math.isclose(r["eval_bits_per_byte_of_sets"]["web"], r["eval_losses"]["web"] / math.log(2), rel_tol=1e-6), r' part/metrics.jsonl

# Mistakes end a start before anything is written.
echo '{"context": "the ship", "endings": ["has"], "label": 4}' >wrong.jsonl
job 2 train run.toml "${run[@]}" --set run.output=none --set data.choices=wrong.jsonl
expect_end 3 'wrong.jsonl, line 1' '"label" is not the number of an ending'
job 2 train run.toml "${run[@]}" --set run.output=none --set data.choices=absent.jsonl
expect_end 3 'absent.jsonl'
program train run.toml "${run[@]}" --set run.output=none --set train.choices_every=4
expect_end 2 'choices_every 4 is not a multiple of eval_every 3' 'set 6'
[[ ! -e none ]] || fail 'a refused start wrote'
