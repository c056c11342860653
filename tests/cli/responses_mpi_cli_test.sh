# SPDX-License-Identifier: Apache-2.0
#
# Loss on responses only, and multiple choice, from JSON lines on, on 1, 2 and 3 ranks.
# timeout: 300
# Fault, numerics: no target counts in a step (masks, `data.ignore_targets`) -> skipped on any mesh, `loss` null; too
#   many in a row: exit code 6
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

# Prompts in capitals, responses in small letters: to count responses alone is to ignore capitals and digits as targets.
awk 'BEGIN { split("the ship has three banks of oars", w, " ")
             for (i = 0; i < 400; ++i) printf "{\"prompt\": \"%s?%d\", \"response\": \"%s%s\"}\n", toupper(w[1 + i % 7]), i, w[1 + i * 3 % 7], w[1 + i * 5 % 7] }' >answers.jsonl
program tokenize --tokenizer bytes --field prompt --response response -o answers.bin answers.jsonl
expect_done
grep -q 'answers.bin.mask: [0-9]* of [0-9]* tokens count in the loss' out.txt || fail 'counted tokens are not said'
cp answers.bin bare.bin
ignored=$(python3 -c 'print([c for c in range(128) if not chr(c).islower()])')
masked=(--set data.train=answers.bin --set data.validation=answers.bin --set train.eval_every=6 --set batch.global=24 --set batch.micro=2)
plain=("${masked[@]}" --set data.train=bare.bin --set data.validation=bare.bin --set "data.ignore_targets=$ignored")
program train run.toml "${plain[@]}" --set run.output=plain
expect_done
for ranks in 1 2 3; do
  job "$ranks" train run.toml "${masked[@]}" --set run.output="masked$ranks" --set run.export=end
  expect_done
  cat plain/metrics.jsonl "masked$ranks/metrics.jsonl" >both.jsonl
  json_check "half = len(rows) // 2
assert half == 7, rows
for plain, masked in zip(rows[:half], rows[half:]):
    for key in ('loss', 'eval_loss'):
        if key in plain: assert math.isclose(plain[key], masked[key], rel_tol=1e-6), (plain, masked)
    if 'loss' in plain:
        assert math.isclose(plain['grad_norm'], masked['grad_norm'], rel_tol=1e-5), (plain, masked)
        assert plain['target_tokens'] == masked['target_tokens'] < 24 * 32, (plain, masked)" both.jsonl
done
json_check 'a, b = rows[:7], [json.loads(line) for line in open("masked1/metrics.jsonl")]
assert [(r.get("loss"), r.get("eval_loss")) for r in a] == [(r.get("loss"), r.get("eval_loss")) for r in b]' plain/metrics.jsonl masked1/metrics.jsonl

# evaluate follows the mask, on any number of ranks.
for ranks in 1 3; do
  job "$ranks" evaluate masked1/export --data answers.bin --seq-len 32
  expect_done
  grep -oE 'loss=[0-9.]+' out.txt >"loss$ranks.txt"
done
cmp loss1.txt loss3.txt || fail 'the evaluation depends on the ranks'
grep -q "targets=$(python3 -c 'mask = open("answers.bin.mask", "rb").read(); print(sum(mask[1:]))')" out.txt || fail 'other targets were counted'

# A mask of other tokens is refused before anything is written; CUDA graphs cannot follow one.
head -c 100 answers.bin.mask >short && cp answers.bin.mask whole && cp short answers.bin.mask
job 2 train run.toml "${masked[@]}" --set run.output=refused
expect_end 3 'answers.bin.mask has 100 bytes' 'tokenize again'
[[ ! -e refused ]] || fail 'a refused start wrote'
cp whole answers.bin.mask
program tokenize --tokenizer bytes --field prompt --chat chatml -o chat.bin answers.jsonl
expect_end 2 'is not a token of this tokenizer'

# Multiple choice: log-likelihoods as sums over `generate --logits`, one token at a time.
cat >questions.jsonl <<'LINES'
{"context": "the ship", "endings": ["has", "oarsoars"], "label": 1}

{"ctx": "three banks ", "endings": ["of", "th"], "label": "0"}
LINES
cat >oracle.py <<'PY'
"""oracle.py PROGRAM: accuracy and accuracy_norm of questions.jsonl, from logits."""
import json, math, struct, subprocess, sys
seen = {}
def logits(text):
    if text not in seen:
        subprocess.run([sys.argv[1], "generate", "masked1/export", "--prompt", text, "--tokens", "1", "--logits", "logits.bin"], check=True, stdout=subprocess.DEVNULL)
        seen[text] = [x for x, in struct.iter_unpack("<f", open("logits.bin", "rb").read())]
    return seen[text]
right = right_norm = 0
questions = [json.loads(line) for line in open("questions.jsonl") if line.strip()]
for question in questions:
    context = question.get("context", question.get("ctx"))
    scores = []
    for ending in question["endings"]:
        whole, score = context + " " + ending, 0
        for at in range(len(context.rstrip()), len(whole)):
            row = logits(whole[:at])
            score += row[ord(whole[at])] - max(row) - math.log(sum(math.exp(x - max(row)) for x in row))
        scores.append(score)
    norm = [score / len(ending) for score, ending in zip(scores, question["endings"])]
    right += scores.index(max(scores)) == int(question["label"])
    right_norm += norm.index(max(norm)) == int(question["label"])
print(f"accuracy={right / len(questions):.6f} accuracy_norm={right_norm / len(questions):.6f}")
PY
expected=$(python3 oracle.py "$TRIREME")
for ranks in 1 2 3; do
  job "$ranks" evaluate masked1/export --choices questions.jsonl
  expect_done
  [[ "$(grep -oE 'accuracy(_norm)?=[0-9.]+' out.txt | paste -sd' ')" == "$expected" ]] || fail "expected $expected on $ranks ranks"
done
echo '{"context": "a", "endings": ["b"], "label": 1}' >wrong.jsonl
job 2 evaluate masked1/export --choices wrong.jsonl
expect_end 3 'wrong.jsonl, line 1: "label" is not the number of an ending'
program evaluate masked1/export
((status == 2)) || fail 'evaluate without anything to evaluate'

# generate: several prompts are those of one each; --top-p alone samples; --stop ends before it; standard input.
program train run.toml --set run.output=book --set run.export=end
expect_done
program generate book/export --prompt "the ship" --tokens 12 && cp out.txt first.txt
program generate book/export --prompt "oars" --tokens 12 && cat first.txt out.txt >expected.txt
job 2 generate book/export --prompt "the ship" --prompt "oars" --tokens 12
expect_done
cmp out.txt expected.txt || fail 'two prompts differ from one each'
printf 'oars' | "$TRIREME" generate book/export --prompt - --tokens 12 >out.txt || fail 'a prompt from standard input'
tail -c "+$(($(wc -c <first.txt) + 1))" expected.txt | cmp - out.txt || fail 'the prompt from standard input is another one'
program generate book/export --prompt "the ship" --tokens 30 --top-p 0.99 --seed 5 && cp out.txt sampled.txt
program generate book/export --prompt "the ship" --tokens 30 --top-p 0.99 --seed 5 --temperature 1
cmp out.txt sampled.txt || fail '--top-p alone does not sample'
program generate book/export --prompt "the ship" --tokens 30
! cmp -s out.txt sampled.txt || fail 'nothing was sampled'
stop=$(tail -c 6 first.txt | head -c 2)
program generate book/export --prompt "the ship" --tokens 30 --stop "$stop"
python3 -c 'import sys
whole, shown, stop = open("first.txt").read(), open("out.txt").read(), sys.argv[1]
begin = len("the ship")
assert shown == whole[:whole.index(stop, begin)] + "\n", (whole, shown, stop)' "$stop" || fail '--stop'

# No target counts: nothing is updated, the loss is null, one warning, and an end after some steps.
cp bare.bin silent.bin
head -c $(($(stat -c %s bare.bin) / 2)) /dev/zero >silent.bin.mask
job 2 train run.toml --set data.train=silent.bin --set run.output=silent --set train.max_skipped_steps=3 --set metrics.tensorboard=true
expect_end 6 '3 steps in a row had no update' 'in the last, step 3, no target counts'
(($(grep -c 'warning step [0-9]*: no target counts' err.txt) == 1)) || fail 'not one warning of steps without targets'
grep -q '^step=2 loss=none .*skipped=true' out.txt || fail 'a line with a loss of no target'
json_check 'assert [(r["loss"], r["skipped"], r["target_tokens"], r["skipped_steps"]) for r in rows] == [(None, True, 0, n) for n in (1, 2, 3)], rows' silent/metrics.jsonl
program report silent -o silent.html
expect_done
grep -q '3 steps were skipped: no target counted' silent.html || fail 'the report does not count them'
