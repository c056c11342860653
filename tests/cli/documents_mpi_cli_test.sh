# SPDX-License-Identifier: Apache-2.0
#
# Attention within documents: their ends come from the sidecar or the index, not from a token that also ends messages;
# tokens of another tokenizer are refused.
# timeout: 300
# Fault, data: sidecar, ends, mask or index of other tokens; another tokenizer -> exit code 3 with both values; for
#   tokenizers unless `data.check_tokenizer = false`
# Fault, data: same vocabulary, but other merges, scores, added tokens, rules, first or last tokens -> a warning by
#   `train` and `evaluate`
# Fault, data: `model.from` and tokens of another tokenizer -> exit code 3 without `data.tokenizer`, else a warning
# Fault, data: ambiguous end of documents -> sidecar or index decides; with `data.document_end` alone a warning
# Fault, data: bits per byte of a tokenizer that normalizes -> over the given text's bytes; without a sidecar
#   `bytes_of=decoded_tokens`
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

# A chat tokenizer of letters whose end of a document is the end of a message, as those of instruct models.
mkdir chat
python3 - <<'PY'
import json
marks = ["<|im_start|>", "<|im_end|>"]
vocabulary = {"?": 0, "\n": 1, " ": 2, **{chr(97 + i): 3 + i for i in range(26)}}
added = [{"id": 29 + i, "content": mark, "special": True} for i, mark in enumerate(marks)]
model = {"type": "BPE", "unk_token": "?", "vocab": vocabulary, "merges": []}
json.dump({"version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": None, "post_processor": None,
           "decoder": None, "model": model}, open("chat/tokenizer.json", "w"))
json.dump({"eos_token": "<|im_end|>"}, open("chat/tokenizer_config.json", "w"))
chats = [[("user", "who sails"), ("assistant", "the ship"), ("user", "where to"), ("assistant", "to the island")],
         [("user", "how many oars"), ("assistant", "three banks of them")]]
for name, picked in {"both": chats, "one": chats[:1], "two": chats[1:]}.items():
    with open(f"{name}.jsonl", "w") as file:
        for chat in picked:
            print(json.dumps({"messages": [{"role": r, "content": c} for r, c in chat]}), file=file)
PY
for name in both one two; do
  program tokenize --tokenizer hf:chat --field messages --chat chatml -o $name.bin $name.jsonl
  expect_done
done
python3 -c 'import json; m = json.load(open("both.bin.meta")); assert (m["documents"], m["document_end"]) == (2, 30), m'

# first_loss NAME TOKENS RANKS OPTIONS...: loss and targets of a step on the whole file as one row, which changes nothing.
first_loss() {
  local name=$1 tokens=$2 ranks=$3
  shift 3
  job "$ranks" train run.toml --set data.train="$tokens" --set run.output="$name" --set data.tokenizer=hf:chat --set data.shuffle=false \
    --set data.seq_len=$(($(stat -c %s "$tokens") / 2 - 1)) --set batch.global="$ranks" --set batch.micro=1 --set optimizer.lr=0 \
    --set train.steps=1 --set model.init_std=0.3 "$@"
  expect_done
}
first_loss one one.bin 1
first_loss two two.bin 1
first_loss unmasked both.bin 1
first_loss masked both.bin 1 --set data.document_mask=true
first_loss named both.bin 1 --set data.document_mask=true --set data.document_end=30
first_loss shared both.bin 2 --set data.document_mask=true
cat {one,two,unmasked,masked,named,shared}/metrics.jsonl >all.jsonl
json_check '
one, two, unmasked, masked, named, shared = (r for r in rows if "loss" in r)
mean = (one["loss"] * one["target_tokens"] + two["loss"] * two["target_tokens"]) / (one["target_tokens"] + two["target_tokens"])
assert masked["target_tokens"] == one["target_tokens"] + two["target_tokens"], rows
assert abs(masked["loss"] - mean) < 1e-6 and masked["loss"] == named["loss"], (mean, rows)
assert abs(shared["loss"] - mean) < 1e-6 and abs(unmasked["loss"] - mean) > 1e-4, (mean, rows)
' all.jsonl

# Without its sidecar each message would be a document: that is warned of.
mkdir bare && cp both.bin both.bin.mask bare
first_loss bare_out bare/both.bin 1 --set data.document_mask=true
grep -q 'it has a mask of targets' err.txt || fail 'no warning'
cat {masked,bare_out}/metrics.jsonl >all.jsonl
json_check 'assert abs(rows[0]["loss"] - rows[1]["loss"]) > 1e-4, rows' all.jsonl

# A Megatron pair of another program has the documents in its index, whatever token ends them.
program tokenize --tokenizer bytes -o pair.idx chat/tokenizer.json --plain
expect_done
rm pair.bin.meta pair.bin.ends
job 2 train run.toml --set data.train=pair.idx --set data.document_mask=true --set run.output=pair --set data.tokenizer=bytes --set train.steps=1
expect_done
! grep -q 'data.document_mask' err.txt || fail 'the index needs no warning'
program train run.toml --set data.train=bare/both.bin --set data.document_mask=true --set run.output=none --set data.tokenizer=
expect_end 2 'bare/both.bin' 'neither a sidecar' 'data.document_end'

# Another tokenizer: its vocabulary is as large, its ids are others.
mkdir rot && sed 's/"a": 3, "b": 4/"b": 3, "a": 4/' chat/tokenizer.json >rot/tokenizer.json && cp chat/tokenizer_config.json rot
program train run.toml --set data.train=both.bin --set data.tokenizer=hf:rot --set data.seq_len=8 --set run.output=none
expect_end 3 'both.bin was tokenized with hf:chat' 'data.tokenizer is hf:rot'
[[ ! -e none ]] || fail 'a refused start wrote'
job 2 train run.toml --set data.train=both.bin --set data.tokenizer=hf:rot --set data.seq_len=8 --set run.output=trusted \
  --set data.check_tokenizer=false --set train.steps=1
expect_done
python3 -c 'import json, shutil; shutil.copytree("chat", "again"); f = "again/tokenizer.json"; json.dump(json.load(open(f)), open(f, "w"), indent=1)'
program train run.toml --set data.train=both.bin --set data.tokenizer=hf:again --set data.seq_len=8 --set run.output=again_out --set train.steps=1
expect_done

# The same vocabulary with other rules, or another token before documents, is a warning.
python3 - <<'PYTHON'
import json, shutil
for name, key, value in (
    ("rules", "normalizer", {"type": "Replace", "pattern": {"String": "\u0004"}, "content": "a"}),
    ("begins", "post_processor", {"type": "BertProcessing", "cls": ["a", 3], "sep": ["b", 4]}),
):
    shutil.copytree("chat", name)
    tokenizer = json.load(open("chat/tokenizer.json"))
    tokenizer[key] = value
    json.dump(tokenizer, open(f"{name}/tokenizer.json", "w"))
PYTHON
for name in rules begins; do
  program train run.toml --set data.train=both.bin --set data.tokenizer=hf:$name --set data.seq_len=8 --set run.output=of_$name --set train.steps=1
  expect_done
  cp err.txt $name.txt
done
grep -q 'both.bin was tokenized with hf:chat, whose merges, scores, added tokens or rules of text are not those of hf:rules' rules.txt ||
  fail 'other rules of text are not noticed'
grep -q 'both.bin was tokenized with hf:chat: its documents begin with token none, those of the tokenizer with 3' begins.txt ||
  fail 'another first token is not noticed'

# evaluate compares as train does; a run that does not compare is evaluated alike, unless --tokenizer is given.
eval_of() { program evaluate "$1" --seq-len 8 --data both.bin "${@:2}"; }
job 1 train run.toml --set data.train=both.bin --set data.tokenizer=hf:chat --set data.seq_len=8 --set run.output=chats \
  --set train.steps=1 --set run.export=end
expect_done
eval_of chats/export
expect_done
eval_of chats/export --tokenizer hf:rot
expect_end 3 'both.bin was tokenized with hf:chat' "the model's is hf:rot"
# Training that begins from a model compares tokens with its tokenizer, and data.tokenizer, too.
program tokenize --tokenizer hf:rot --field messages --chat chatml -o rot.bin both.jsonl
expect_done
from_chats=(run.toml --set model.from=chats/export --set data.train=rot.bin --set data.seq_len=8 --set train.steps=1)
program train "${from_chats[@]}" --set data.tokenizer= --set run.output=none
expect_end 3 'rot.bin was tokenized with hf:rot' 'that of model.from is hf:'
program train "${from_chats[@]}" --set data.tokenizer=hf:rot --set run.output=from_chats
expect_done
grep -q 'data.tokenizer = hf:rot encodes text to other ids, but chats/export was trained with hf:' err.txt ||
  fail 'a tokenizer other than that of model.from is not noticed'
program train "${from_chats[@]}" --set data.train=both.bin --set data.tokenizer=hf:again --set run.output=from_chats_too
expect_done
! grep -q 'was trained with' err.txt || fail 'the same tokenizer in another format counts as another one'
job 1 train run.toml --set data.train=both.bin --set data.tokenizer=hf:rot --set data.seq_len=8 --set run.output=rotated \
  --set data.check_tokenizer=false --set train.steps=1 --set run.export=end --set checkpoint.at_end=true
expect_done
eval_of rotated/export
expect_end 3 'both.bin was tokenized with hf:chat' "the model's is hf:"
eval_of rotated/export --tokenizer hf:chat
expect_done
eval_of rotated/checkpoints/step-00000001
expect_done
eval_of rotated/checkpoints/step-00000001 --tokenizer hf:rot
expect_end 3 'both.bin was tokenized with hf:chat'

# A sidecar's documents need no end id; for files without one the tokenizer's is used, else it has to be set.
eval_of chats/export --document-mask true
expect_done
masked=$(grep -oE ' loss=[^ ]+' out.txt)
eval_of chats/export --document-mask true --document-end 1
expect_done
[[ $(grep -oE ' loss=[^ ]+' out.txt) == "$masked" ]] || fail 'an id decides over the sidecar'
program evaluate chats/export --seq-len 8 --data bare/both.bin --document-mask true
expect_done
grep -q 'has neither a sidecar nor an index, so data.document_end = 30 ends its documents' err.txt || fail 'no warning'
cp -r chats/export untold && rm untold/tokenizer*
program evaluate untold --seq-len 8 --data bare/both.bin --document-mask true
expect_end 2 'bare/both.bin' 'give the id of the token that ends a document with --document-end'
eval_of untold --document-mask true
expect_done
[[ $(grep -oE ' loss=[^ ]+' out.txt) == "$masked" ]] || fail 'without a tokenizer documents are others'

# Bits per byte are over the bytes of the text that was given, which a tokenizer with normalization makes fewer.
mkdir lower
python3 - <<'PY'
import json
tokenizer = json.load(open("chat/tokenizer.json"))
tokenizer["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]}
json.dump(tokenizer, open("lower/tokenizer.json", "w"))
open("lower.txt", "w", encoding="utf-8").write("ﬁne ﬂags ﬂy\n" * 40)
PY
cp chat/tokenizer_config.json lower
program tokenize --tokenizer hf:lower -o lower.bin lower.txt
expect_done
bytes=$(stat -c %s lower.txt)
for model in "chats/export --tokenizer hf:lower" untold; do
  # shellcheck disable=SC2086  # several words
  job 2 evaluate $model --seq-len 8 --data lower.bin
  expect_done
  read -r loss targets bits counted_bytes <<<"$(sed -E 's/.* loss=([^ ]+) .* bits_per_byte=([^ ]+) bytes=([^ ]+) bytes_of=text .*targets=([^ ]+) .*/\1 \4 \2 \3/' out.txt)"
  python3 -c 'import math, sys; l, t, b, n, m = map(float, sys.argv[1:]); assert n == m and abs(l * t / math.log(2) / n - b) < 1e-4' \
    "$loss" "$targets" "$bits" "$counted_bytes" "$bytes" || fail 'bits per byte of the text'
done
program evaluate chats/export --tokenizer hf:lower --seq-len 8 --data lower.bin --limit 3
expect_done
grep -q ' bytes_of=decoded_tokens ' out.txt || fail 'a part of a file has no bytes of text'

# Files that do not belong together.
truncate -s -2 one.bin
program train run.toml --set data.train=one.bin --set data.tokenizer=hf:chat --set data.seq_len=8 --set run.output=none
expect_end 3 'one.bin.mask has'
rm one.bin.mask
program train run.toml --set data.train=one.bin --set data.tokenizer=hf:chat --set data.seq_len=8 --set run.output=none
expect_end 3 'one.bin: its sidecar' 'do not belong together'
