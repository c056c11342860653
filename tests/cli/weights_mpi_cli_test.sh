# SPDX-License-Identifier: Apache-2.0
#
# Weights go round: out of a run, into a Hugging Face directory, back as a checkpoint, into another run, into a text.
# timeout: 400
# Fault, exports: logits cannot be written -> the previous file stays
# Fault, exports: an export of an imported model -> configuration keys as given; `max_position_embeddings` at least
#   `data.seq_len`
# Fault, exports: generation_config.json lists more ends of text than config.json -> `generate` stops at those of
#   both; invalid: exit code 4
# Fault, start: two processes write one output (`tokenize`, `import`, `export`) -> the second: exit code 8; the first
#   is untouched
# Fault, data: other versions of SentencePiece, PCRE2 or utf8proc -> warning with both versions
# Fault, data: `--tokenizer` gives other ids than the model's -> warning with the difference
# Fault, data: a file of a checkpoint's tokenizer changes -> exit code 4 where it decides ids
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

sed -e 's/^at_end = .*/every = 2/' -e 's/^name = .*/&\nexport = "every_checkpoint"/' -i run.toml
same_directory() {  # same_directory A B: the same files with the same bytes
  diff -r "$1" "$2" >out.txt 2>err.txt || fail "$1 and $2 differ"
}

job 2 train run.toml --set checkpoint.keep=1 --set checkpoint.keep_every=4
expect_done
[[ $(ls out/checkpoints) == $'step-00000004\nstep-00000006' ]] || fail "keep_every: left are $(ls out/checkpoints)"
for step in 2 4 6; do [[ -s out/export-step-0000000$step/model.safetensors ]] || fail "no export after step $step"; done
checkpoint=out/checkpoints/step-00000006

program export $checkpoint -o again --dtype fp32
expect_done
same_directory again out/export-step-00000006
grep -q '"eos_token_id": 256' again/config.json || fail 'an export of a checkpoint does not say where text ends'

program import again -o imported
expect_done
program verify imported
expect_done
program inspect imported
expect_done
grep -q '^step 0, 0 updates' out.txt || fail 'what was imported is at step 0'
program export imported -o third --dtype fp32
expect_done
same_directory third again
program import again -o imported
expect_end 4 'exists already'
# Two imports to one path: during the first one (here: stopped), the second is rejected and leaves its files unchanged.
TRIREME_FAULT=ckpt.sync:stop:0 "$TRIREME" import again -o twice >out.txt 2>err.txt &
pid=$!
last='import again -o twice'
for ((i = 0; i < 2400; ++i)); do
  [[ $(ps -o stat= -p $pid) != T* ]] || break
  sleep 0.05
done
program import again -o twice
expect_end 8 'twice: another process is writing it'
kill -CONT $pid
wait $pid || fail 'the first of two imports'
program verify twice
expect_done
[[ -z $(find . -maxdepth 1 -name '.twice*') ]] || fail "left behind: $(ls -A)"
program import tokens.bin -o other
expect_end 4 'holds no weights'

# A key of config.json that nothing follows is one warning, with its value.
cp -r again odd
sed -i '0,/{/s//{"clip_qkv": 8.0,/' odd/config.json
for command in 'plan run.toml --ranks 1 --set model.from=odd' 'import odd -o odd-imported' \
  'generate odd --prompt ship --tokens 1'; do
  # shellcheck disable=SC2086  # several words
  program $command
  expect_done
  [[ $(grep -c 'odd/config.json: clip_qkv = 8.0: these keys are not read' err.txt) == 1 ]] || fail "$command: no warning, or two"
done

# A text is the same out of all of them.
for model in again $checkpoint imported; do
  program generate "$model" --prompt 'the ship' --tokens 12
  expect_done
  [[ ! -e text ]] && cp out.txt text
  cmp out.txt text || fail "$model generates another text"
done
# A model that ends its texts with several tokens, as chat models do: here a blank, too.
cp -r again chat
sed -i 's/"eos_token_id": 256/"eos_token_id": [256, 32]/' chat/config.json
program generate chat --prompt 'the ship' --tokens 12
expect_done
rest=$(cat text)
rest=${rest#the ship}
[[ $rest == *' '* && $(cat out.txt) == "the ship${rest%% *}" ]] || fail "a text that does not end at the model's eos_token_id: $(cat out.txt)"
# generation_config.json lists more of them.
cp -r again chat2
echo '{"eos_token_id": [256, 32]}' >chat2/generation_config.json
program import chat2 -o chat2-imported
expect_done
for model in chat2 chat2-imported; do
  program generate $model --prompt 'the ship' --tokens 12
  expect_done
  [[ $(cat out.txt) == "the ship${rest%% *}" ]] || fail "$model: a text that does not end where generation_config.json has it: $(cat out.txt)"
done
# Keys of config.json and generation_config.json go through import, training, resumed training and both ways of exporting.
python3 - <<'PYTHON'
import json
config = json.load(open("again/config.json"))
config.update(max_position_embeddings=256, bos_token_id=3, eos_token_id=[256, 5], pad_token_id=7, use_cache=False, tokenizer_class="X", note={"a": [1]})
json.dump(config, open("chat2/config.json", "w"))
json.dump({"bos_token_id": 3, "eos_token_id": [256, 5, 6], "do_sample": True, "temperature": 0.6}, open("chat2/generation_config.json", "w"))
PYTHON
rm -r chat2-imported
program import chat2 -o chat2-imported
expect_done
program export chat2-imported -o kept-import --dtype fp32
expect_done
for from in model.from=chat2 model.from=chat2-imported checkpoint.resume=chat2-imported; do
  out=kept-${from//[.=]/-}
  options=(run.toml --set "run.output=$out" --set "$from" --set checkpoint.every=1 --set run.export=end)
  job 2 train "${options[@]}" --set train.steps=1
  expect_done
  job 2 train "${options[@]/checkpoint.resume=chat2-imported/checkpoint.resume=auto}" --set train.steps=2
  expect_done
  program export "$out/checkpoints/step-00000002" -o "$out-again" --dtype fp32
  expect_done
  for of in "$out/export" "$out-again"; do
    json_check 'known, made = (json.load(open(file)) for file in files)
assert known == made, {key: (known.get(key), made.get(key)) for key in {*known, *made} if known.get(key) != made.get(key)}' \
      kept-import/config.json "$of/config.json"
    cmp kept-import/generation_config.json "$of/generation_config.json" || fail "$of: another generation_config.json"
  done
done
json_check 'given, made = (json.load(open(file)) for file in files)
for x in (given, made): x.pop("torch_dtype")
assert given == made, {key: (given.get(key), made.get(key)) for key in {*given, *made} if given.get(key) != made.get(key)}' \
  chat2/config.json kept-import/config.json
json_check 'given, made = (json.load(open(file)) for file in files); assert given == made, made' \
  chat2/generation_config.json kept-import/generation_config.json
job 2 train run.toml --set run.output=longer --set model.from=chat2 --set data.seq_len=512 --set batch.global=2 --set batch.micro=1 --set run.export=end --set train.steps=1
expect_done
json_check 'made = json.load(open(files[0])); assert made["max_position_embeddings"] == 512, made' longer/export/config.json
# Logits take the place of older ones when all of them are written; a device stays one.
echo before >logits
printf 'write 0 1 ENOSPC /.logits' >rules
# shellcheck disable=SC2086  # several words
launch env LD_PRELOAD="$SYSTEM_CALLS" SYSTEM_CALLS_RULES="$work/rules" "$TRIREME" generate again --prompt 'the ship' --tokens 1 --logits logits
expect_end 8 'No space left on device'
[[ $(cat logits) == before && -z $(find . -maxdepth 1 -name '.logits*') ]] || fail 'half a file of logits'
for target in logits /dev/null; do
  program generate again --prompt 'the ship' --tokens 1 --logits $target
  expect_done
done
[[ $(stat -c %s logits) == $((4 * 257)) && -c /dev/null ]] || fail "logits of $(stat -c %s logits) bytes"
# The tokenizer goes with the weights; where it is not known it is not guessed.
mkdir bare
cp again/config.json again/model.safetensors bare
program generate bare --prompt 'the ship' --tokens 12
expect_end 4 'bare: holds no tokenizer and names none' '--tokenizer bytes'
program generate bare --prompt 'the ship' --tokens 12 --tokenizer bytes
expect_done
cmp out.txt text || fail 'the tokenizer that is given says something else'
# Tokens that a tokenizer adds before every document also precede the prompt.
python3 - <<'PYTHON'
import json, os
for name, single in ("begins", [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}]), ("plain", []):
    os.mkdir(name)
    whole = json.load(open("again/tokenizer.json"))
    whole["post_processor"] = {"type": "TemplateProcessing", "single": [*single, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
                               "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [256], "tokens": ["<|endoftext|>"]}}}
    json.dump(whole, open(f"{name}/tokenizer.json", "w"))
    json.dump({"eos_token": "<|endoftext|>"}, open(f"{name}/tokenizer_config.json", "w"))
PYTHON
logits_of() {  # logits_of FILE TOKENIZER PROMPT
  program generate again --tokenizer "$2" --prompt "$3" --tokens 1 --logits "$1"
  expect_done
}
logits_of begun hf:begins 'the ship'
grep -q -- '--tokenizer hf:begins puts the tokens \[256\] before a text instead of \[\], but again was trained with bytes' err.txt ||
  fail 'no warning of a tokenizer that is not the model'"'"'s'
logits_of written hf:plain '<|endoftext|>the ship'
logits_of bare.logits hf:plain 'the ship'
! grep -q 'was trained with' err.txt || fail 'a warning of a tokenizer that gives the same ids'
cmp begun written || fail 'the prompt does not begin as a document does'
! cmp -s begun bare.logits || fail 'the mark of the beginning changes nothing'
# An export records the tokens that begin and end a document.
for name in begins plain; do
  program train run.toml --set data.tokenizer=hf:$name --set data.check_tokenizer=false --set run.output=of-$name --set run.export=end --set train.steps=1
  expect_done
done
json_check 'ids = [json.load(open(file)) for file in files]
assert [(x["bos_token_id"], x["eos_token_id"]) for x in ids] == [(256, 256), (256, 256), (None, 256)], ids' \
  of-begins/export/config.json of-begins/export/generation_config.json of-plain/export/config.json
if command -v spm_train >/dev/null; then
  spm_train --input=text.txt --model_prefix=ship --vocab_size=80 --hard_vocab_limit=false --minloglevel=2 2>spm.log
  program tokenize --tokenizer spm:ship.model -o pieces.bin text.txt
  expect_done
  job 2 train run.toml --set data.train=pieces.bin --set data.tokenizer=spm:ship.model --set run.output=pieces --set train.steps=2
  expect_done
  checkpoint_of_pieces=pieces/checkpoints/step-00000002
  program generate pieces/export-step-00000002 --prompt 'the ship' --tokens 12 --tokenizer spm:ship.model
  expect_done
  mv out.txt text-of-pieces
  for model in pieces/export-step-00000002 $checkpoint_of_pieces; do
    (mkdir -p elsewhere && cd elsewhere && program generate "../$model" --prompt 'the ship' --tokens 12 && expect_done && mv out.txt ../out.txt)
    cmp out.txt text-of-pieces || fail "$model does not take its own tokenizer"
  done
  program export $checkpoint_of_pieces -o pieces-again --dtype fp32
  expect_done
  same_directory pieces-again pieces/export-step-00000002
  cmp pieces-again/tokenizer.model ship.model || fail 'an export lacks the tokenizer'
  # Versions of the libraries that made the training data are compared with those here.
  ! grep -q 'versions may give' err.txt || fail 'a warning of the same versions'
  cp -r pieces-again elsewhere/of-others
  sed -i 's/"trireme_tokenizer_library": .*/"trireme_tokenizer_library": "trireme 0.0.1, sentencepiece 0.0.9"/' elsewhere/of-others/tokenizer_config.json
  program generate elsewhere/of-others --prompt 'the ship' --tokens 1
  expect_done
  grep -q 'of-others: the tokenizer of its training used sentencepiece 0.0.9, here [0-9.]*: versions may give other ids' err.txt ||
    fail "other versions are not noticed: $(cat err.txt)"
  program import elsewhere/of-others -o elsewhere/imported
  expect_done
  program generate elsewhere/imported --prompt 'the ship' --tokens 1
  expect_done
  grep -q 'sentencepiece 0.0.9, here' err.txt || fail 'a checkpoint loses the versions'
  # Every file of the tokenizer that decides ids belongs to its fingerprint, other files do not.
  echo '{"chat_template": "{{ x }}"}' >tokenizer_config.json
  program generate $checkpoint_of_pieces --prompt 'the ship' --tokens 1
  expect_done
  echo '{"add_bos_token": true}' >tokenizer_config.json
  program generate $checkpoint_of_pieces --prompt 'the ship' --tokens 1
  expect_end 4 'has changed since it was saved' '--tokenizer'
  program generate $checkpoint_of_pieces --prompt 'the ship' --tokens 1 --tokenizer spm:ship.model
  expect_done
  grep -q -- '--tokenizer spm:ship.model .*, but .* was trained with\|cannot be compared with' err.txt || fail 'a changed tokenizer is not noticed'
  rm tokenizer_config.json
  cp ship.model moved.model
  program generate $checkpoint_of_pieces --prompt 'the ship' --tokens 1 --tokenizer spm:moved.model
  expect_done
  ! grep -q -- '--tokenizer' err.txt || fail 'a warning of the same tokenizer elsewhere'
  echo >>ship.model
  program generate $checkpoint_of_pieces --prompt 'the ship' --tokens 12
  expect_end 4 'has changed since it was saved' '--tokenizer'
  rm ship.model
  program generate $checkpoint_of_pieces --prompt 'the ship' --tokens 12
  expect_end 4 'ship.model' '--tokenizer'
  program export $checkpoint_of_pieces -o pieces-third --dtype fp32
  expect_end 4 'ship.model' '--tokenizer'
  program export $checkpoint_of_pieces -o pieces-third --dtype fp32 --tokenizer spm:moved.model
  expect_done
  same_directory pieces-again pieces-third
  program generate pieces/export-step-00000002 --prompt 'the ship' --tokens 12
  expect_done
  cmp out.txt text-of-pieces || fail 'an export needs a file beside it'
else
  not_tried 'SentencePiece models: spm_train is not there'
fi
mkdir nothing
program generate nothing --prompt 'the ship'
expect_end 4 'holds no weights'
program generate out/checkpoints --prompt 'the ship'
expect_end 4 'is a directory of 2 checkpoints; name one of them, such as out/checkpoints/step-00000006'
for command in 'inspect out' 'generate out --prompt ship'; do
  # shellcheck disable=SC2086  # several arguments
  program $command
  expect_end 4 'out: is the directory of a run; name one of its checkpoints, such as out/checkpoints/step-00000006'
done
program export $checkpoint -o again
expect_end 4 'is not empty' '--overwrite'
mkdir sizes
cp again/config.json sizes
# Replaced is what an export wrote, never a downloaded model, whose files have the same names.
cp -r again downloaded
python3 - <<'PYTHON'
import struct
data = open("again/model.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = data[8 : 8 + size].replace(b'"writer":"trireme"', b'"license":"theirs"')
assert header != data[8 : 8 + size], data[:200]
open("downloaded/model.safetensors", "wb").write(struct.pack("<Q", len(header)) + header + data[8 + size :])
PYTHON
program export $checkpoint -o downloaded --overwrite
expect_end 4 'downloaded: holds "model.safetensors", which no export of Trireme wrote' 'move it away'
program export $checkpoint -o again --overwrite --dtype fp32
expect_done
rm -r downloaded

# evaluate counts what training counted, from any of them, on any number of ranks; bits per byte are of the text.
job 2 train run.toml --set run.output=judged --set train.steps=4 --set train.eval_every=4 --set data.validation=tokens.bin --set checkpoint.every=4
expect_done
for of in "1 judged/checkpoints/step-00000004" "3 judged/export-step-00000004"; do
  job "${of% *}" evaluate "${of#* }" --data tokens.bin --seq-len 32 --micro 4
  expect_done
  python3 - <<'PYTHON' || fail "evaluate of $of"
import array, json, math, os
said = dict(word.split("=") for word in open("out.txt").read().split())
counted = [row["eval_loss"] for row in map(json.loads, open("judged/metrics.jsonl")) if "loss" not in row][-1]
ids = array.array("H", open("tokens.bin", "rb").read())
targets = len(ids) - 1
text = os.path.getsize("text.txt")
assert abs(float(said["loss"]) - counted) < 1e-5, (said, counted)
assert int(said["targets"]) == targets and int(said["seq_len"]) == 32, said
assert math.isclose(float(said["perplexity"]), math.exp(counted), rel_tol=1e-4), said
assert math.isclose(float(said["bits_per_byte"]), counted * targets / math.log(2) / text, rel_tol=1e-5), said
PYTHON
done
job 2 evaluate again --data nowhere.bin
expect_end 3 'nowhere.bin'
job 2 evaluate out --data tokens.bin
expect_end 4 'is the directory of a run'

# The next start writes the missing export of its checkpoint, also where it has nothing else to do.
again=(--set run.output=missing --set train.steps=4 --set checkpoint.every=2 --set run.export=every_checkpoint)
job 2 train run.toml "${again[@]}"
expect_done
mv missing/export-step-00000004 whole-export
rm -r missing/export-step-00000002
job 2 train run.toml "${again[@]}"
expect_done
cmp missing/export-step-00000004/model.safetensors whole-export/model.safetensors || fail 'the missing export was not written'
grep -q 'missing/export-step-00000002 is missing; write it with: trireme export missing/checkpoints/step-00000002' err.txt ||
  fail 'the export of an older checkpoint is not named'

# A run that begins with them, its model's sizes left out, has the same losses from each.
sed -e '/^\[model\]/,/^\[data\]/{/^\[/!d}' -e 's/^export = .*//' run.toml >from.toml
for model in again $checkpoint imported; do
  job 2 train from.toml --set model.from="$model" --set run.output="from-${model##*/}" --set train.steps=3
  expect_done
done
program plan from.toml --ranks 1 --set model.from=sizes  # without the weights
expect_done
program plan from.toml --ranks 1 --set model.from=$checkpoint  # whose sizes HDF5 holds
expect_done
losses() { sed -E 's/.*"loss":([^,]*),.*/\1/' "$1/metrics.jsonl"; }
cmp <(losses from-again) <(losses from-step-00000006) || fail 'a run from a checkpoint has other losses'
cmp <(losses from-again) <(losses from-imported) || fail 'a run from an import has other losses'
json_check 'assert rows[0]["step"] == 1 and rows[0]["loss"] < 4.5, "it does not begin with the weights"' from-again/metrics.jsonl
# Gone on from, it is a run at its beginning.
job 2 train run.toml --set checkpoint.resume=imported --set run.output=resumed --set train.steps=3
expect_done
cmp <(losses from-again) <(losses resumed) || fail 'a run resumed from an import has other losses'

printf 'x' | dd of=imported/shards/dp-00000-tp-00.h5 bs=1 seek=9000 conv=notrunc 2>/dev/null
job 2 train from.toml --set model.from=imported --set run.output=damaged
expect_end 4 'imported/shards/dp-00000-tp-00.h5' 'damaged'
job 2 train from.toml --set model.from=again --set model.layers=3 --set run.output=otherwise
expect_end 2 'model.layers = 3'
