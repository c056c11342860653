# SPDX-License-Identifier: Apache-2.0
#
# trireme chat through a pipe: replies are those of `generate` after the written-out conversation, on 1 and 2 ranks; full
# contexts, unknown templates.
# timeout: 300
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

# A byte-level tokenizer with the marks of ChatML.
mkdir tok
python3 - <<'PY'
import json
shows = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b != 0xAD and b >= 0xA1]
vocab, later = {}, 0x100
for byte in range(256):
    if byte in shows:
        vocab[chr(byte)] = byte
    else:
        vocab[chr(later)] = byte
        later += 1
marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
added = [{"id": 256 + i, "content": m, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for i, m in enumerate(marks)]
vocab.update({m: 256 + i for i, m in enumerate(marks)})
byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": byte_level,
           "post_processor": None, "decoder": byte_level, "model": {"type": "BPE", "dropout": None, "unk_token": None, "vocab": vocab, "merges": []}},
          open("tok/tokenizer.json", "w"))
json.dump({"eos_token": "<|endoftext|>", "chat_template": "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"},
          open("tok/tokenizer_config.json", "w"))
chats = [[("Ship?", "Oars é."), ("Wind?", "Sails.")], [("Wind?", "Sails."), ("Ship?", "Oars é.")]]
with open("chats.jsonl", "w") as file:
    for i in range(200):
        messages = [{"role": role, "content": text} for turn in chats[i % 2] for role, text in zip(("user", "assistant"), turn)]
        print(json.dumps({"messages": messages}), file=file)
PY
program tokenize --tokenizer hf:tok --field messages --chat chatml -o chats.bin chats.jsonl
expect_done
program train run.toml --set data.train=chats.bin --set data.tokenizer=hf:tok --set model.vocab_size=259 --set data.seq_len=128 \
  --set batch.global=4 --set train.steps=60 --set run.export=end
expect_done
mv out/export model

# The replies are what generate continues the conversation with.
printf 'Ship?\n\nWind?\n/exit\nnever read\n' >questions.txt
user() { printf '<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n' "$1"; }
reply_to() { # PROMPT: the text behind it
  "$TRIREME" generate model --prompt "$1" --tokens 60 --stop '<|im_end|>' --temperature 0 >whole.txt
  python3 -c 'import sys
whole, prompt = open("whole.txt", encoding="utf-8").read(), sys.argv[1]
for mark in ("<|im_start|>", "<|im_end|>"): prompt = prompt.replace(mark, "")
start = len(prompt) if whole.startswith(prompt) else 0
print(whole[start:].rstrip("\n"))' "$1"
}
first_prompt=$(user 'Ship?'; printf x)
first_prompt=${first_prompt%x}
first=$(reply_to "$first_prompt")
second_prompt=$(printf '%s%s<|im_end|>\n' "$first_prompt" "$first"; user 'Wind?'; printf x)
second=$(reply_to "${second_prompt%x}")
printf '%s\n%s\n' "$first" "$second" >expected.txt
for ranks in 1 2; do
  job "$ranks" chat model --temperature 0 --tokens 60 <questions.txt
  expect_done
  cmp out.txt expected.txt || fail "on $ranks ranks the replies are not what generate continues with"
  grep -q '\[chatml, context of 128 tokens' err.txt || fail 'format and context are not printed'
done
iconv -f UTF-8 -t UTF-8 out.txt >/dev/null || fail 'the output is no UTF-8'

# A full context: the oldest question goes, and a message that does not fit is left out.
printf 'Ship?\nWind?\nShip?\n/reset\n%s\nWind?\n' "$(printf 'long %.0s' {1..40})" >questions.txt
program chat model --temperature 0 --tokens 8 --context 80 <questions.txt
expect_done
grep -q 'the context of 80 tokens is full: the oldest question is left out' err.txt || fail 'no note of a full context'
grep -qE 'the message has [0-9]+ tokens .* more than the context of 80; it is left out' err.txt || fail 'no note of a long message'
grep -q 'the conversation is empty' err.txt || fail '/reset has no note'
program chat model --temperature 0 --context 1000 </dev/null
expect_end 2 '--context 1000: the model was trained on at most 128 tokens'

# Templates: a fixed system message is taken, --system replaces it; none or another one is an error.
sed -i "s/{% for/{{ '<|im_start|>system\\\\\\\\nBe brief.<|im_end|>\\\\\\\\n' }}{% for/" model/tokenizer_config.json
program chat model </dev/null
expect_done
grep -q 'system message: Be brief\.' err.txt || fail 'the system message of the template is not taken'
program chat model --system '' </dev/null
expect_done
! grep -q 'system message' err.txt || fail '--system "" leaves one'
sed -i 's/im_start/im_begin/g' model/tokenizer_config.json
program chat model </dev/null
expect_end 2 'its chat template is neither of ChatML nor of Llama 3' 'give --chat chatml or llama3'
program chat model --chat chatml </dev/null
expect_done
program chat model --chat llama3 </dev/null
expect_end 2 '--chat llama3: "<|start_header_id|>" is not a token of this tokenizer'
