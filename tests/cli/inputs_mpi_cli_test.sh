# SPDX-License-Identifier: Apache-2.0
#
# Every input of a user or a file is handled: extreme values, files of other kinds, limits on the size of files, a signal before
# the training.
# timeout: 400
# processors: 1
# Fault, saves: `ulimit -f` in `tokenize`, `export`, `import`, `plan > FILE` -> exit code 8; nothing is left behind
# Fault, stops: SIGTERM before the training -> ends the start; nothing is saved
# Fault, plans: values at the ends of their ranges, false sizes in files -> refused with the range, memory bounded;
#   exit code 5 beyond the system's memory
# Fault, plans: an unreadable machine file, CSV of `plan --validate`, standard input -> the errno, exit code 2 or 5
# Fault, files: an input file is a FIFO, device, socket or directory -> refused with its kind (text to tokenize may be
#   a pipe)
# Fault, files: metrics.jsonl, event file or `.job.lock` is no regular file -> exit code 8 with its kind
# Fault, files: a link, FIFO or socket under the name of a temporary file -> removed, never followed; a directory or
#   device is refused
# Fault, files: an output is a device or pipe -> written to (`report`, `generate --logits`) or exit code 8; a FIFO
#   without reader is refused
# Fault, files: an output is an input by any name -> exit code 2; nothing is touched
# Fault, files: standard output of `generate` cannot be written -> exit code 8
# Fault, files: control characters in files and messages -> printed as `\xNN`
source "$TRIREME_SOURCE/tests/cli/small_run.sh"
source "$TRIREME_SOURCE/tests/support/processes.sh"
export OMPI_MCA_odls_base_sigkill_timeout=0

listing() { find . -mindepth 1 -maxdepth 1 ! -name out.txt ! -name err.txt ! -name out ! -name err ! -name before | sort; }
nothing_new() {  # nothing_new: no file was created in addition to those of `before`
  listing | diff before - || fail "left behind by: $last"
}

job 1 train run.toml --set run.output=first --set train.steps=1 --set checkpoint.at_end=true \
  --set model.hidden_size=512 --set model.intermediate_size=1024
expect_done
checkpoint=first/checkpoints/step-00000001

# A FIFO, a device or a directory in the place of a file: nothing waits for a writer.
mkfifo fifo
mkdir -p hf/empty broken
mkfifo hf/config.json
cp -r $checkpoint/. broken
rm broken/COMMIT
mkfifo broken/COMMIT
program plan fifo --ranks 1
expect_end 2 'fifo: cannot read the run file' 'a FIFO'
program plan run.toml --ranks 1 --machine fifo
expect_end 2 '--machine fifo' 'a FIFO'
program plan run.toml --ranks 1 --machine h100 --validate fifo
expect_end 2 '--validate fifo' 'a FIFO'
mkdir piped
mkfifo piped/run.toml
program train run.toml --set run.output=piped --set train.steps=1
expect_done
[[ -p piped/run.toml && -f piped/run.effective.toml ]] || fail 'a FIFO in the place of run.toml'
program plan run.toml --ranks 1 --set model.from=hf
expect_end 4 'hf/config.json' 'a FIFO'
program inspect broken
expect_end 4 'broken/COMMIT' 'a FIFO'
program train run.toml --set data.train=fifo
expect_end 3 'token file fifo is a FIFO'
program tokenize --tokenizer spm:fifo -o x.bin text.txt
expect_end 3 'fifo is a FIFO'
truncate -s 100G sparse
program tokenize --tokenizer spm:sparse -o x.bin text.txt
expect_end 3 'sparse has 107374182400 bytes'
rm sparse
program tokenize --tokenizer bytes -o x.bin /dev/zero
expect_end 3 '/dev/zero is a device'
cat text.txt | "$TRIREME" tokenize --tokenizer bytes -o piped.bin /dev/stdin >out.txt || fail 'a pipe is no text'
cmp tokens.bin piped.bin || fail 'a pipe gives other tokens than a file'
printf '{"text": "one"}\n{"text": "two"}\n' | gzip | "$TRIREME" tokenize --tokenizer bytes --field text --threads 2 -o lines.idx - >out.txt ||
  fail 'compressed JSON lines by standard input'
grep -q '8 uint16 tokens of 2 documents (6 bytes of text)' out.txt || fail "$(cat out.txt)"
printf '{"text": "one"}\n{"text": "two"}\n' >lines.jsonl
program tokenize --tokenizer bytes -o x.bin lines.jsonl
expect_end 3 'lines.jsonl holds JSON lines' '--field text'
program tokenize --tokenizer bytes --field body -o x.bin lines.jsonl
expect_end 3 'lines.jsonl, line 1' 'no field "body"' 'name one of its text fields: text'

# Values at the ends of their ranges.
program train run.toml --set batch.global=1073741824
expect_end 2 'batch.global' 'microbatches' 'larger batch.micro'
program train run.toml --set batch.global=1073741824 --set batch.micro=1073741824
expect_end 2 'tokens in a microbatch'
program train run.toml --set data.prefetch_batches=4096 --set batch.micro=16384 --set batch.global=32768 --set data.seq_len=4096
expect_end 5 'data.prefetch_batches'
program train run.toml --set comm.timeout_seconds=1e10 --set run.output=patient --set train.steps=1
expect_done
job 1 train run.toml --set 'data.train=[{path="tokens.bin", weight=2}, {path="piped.bin", weight=1}]' \
  --set data.skip_to=1000000000000 --set run.output=far --set train.steps=1
expect_done
program generate $checkpoint --prompt ship --temperature nan
expect_end 2 '--temperature' 'nan is not a number from 0 to 1000000'
program tokenize --tokenizer bytes -o x.bin text.txt --validation nan
expect_end 2 '--validation' 'nan is not a number from 0 to 0.5'
program plan run.toml --ranks -1
expect_end 2 '--ranks' 'from 1 to 2147483647'
program plan --ranks 1 --set train.steps=2 run.toml
expect_done

# A text that cannot be written is not generated to its end.
launch bash -c "\"$TRIREME\" generate $checkpoint --prompt ship --tokens 1000 >/dev/full"
expect_end 8 'Standard output could not be written: No space left on device'

# An output replaces no input, whatever it is called, and no device and no pipe.
"$TRIREME" export $checkpoint -o whole >/dev/null
for name in metrics.jsonl run.toml; do
  cp first/$name before
  program report first -o first/$name
  expect_end 2 "report would replace its own input first/$name"
  cmp before first/$name || fail "the report replaced $name"
done
ln first/metrics.jsonl hard
ln -s first/run.toml soft
program report first -o hard
expect_end 2 'would replace its own input first/metrics.jsonl (as hard)'
program report first -o soft
expect_end 2 'would replace its own input first/run.toml (as soft)'
program plan run.toml --ranks 1 --machine h100 --trace run.toml
expect_end 2 'plan would replace its own input run.toml'
program plan run.toml --ranks 1 --machine h100 --trace tokens.bin
expect_end 2 'plan would replace its own input tokens.bin'
program plan run.toml --ranks 1 --machine h100 --search -o run.toml
expect_end 2 'plan would replace its own input run.toml'
program generate whole --prompt a --tokens 1 --logits whole/model.safetensors
expect_end 2 'generate would replace its own input whole/model.safetensors'
program generate $checkpoint --prompt a --tokens 1 --logits $checkpoint/shards/dp-00000-tp-00.h5
expect_end 2 'generate would replace its own input'
# shellcheck disable=SC2094  # which is what is refused
program tokenize --tokenizer bytes -o text.txt - <text.txt
expect_end 2 'tokenize would replace its own input'
program tokenize --tokenizer hf:whole -o whole/tokenizer.json text.txt
expect_end 2 'tokenize would replace its own input whole/tokenizer.json'
program export $checkpoint --tokenizer hf:whole -o whole --overwrite
expect_end 2 'export would replace its own input whole'
program import whole -o whole
expect_end 2 'import would replace its own input whole'
"$TRIREME" verify $checkpoint >verified.txt || fail 'the checkpoint was changed'
program report first -o /dev/null
expect_done
[[ -c /dev/null ]] || fail '/dev/null is a file'
mkfifo page
cat page >read.html &
program report first -o page
expect_done
wait $!
[[ -p page && $(head -c 9 read.html) == '<!DOCTYPE' ]] || fail "the page that a pipe got: $(head -c 80 read.html)"
program report first -o page
expect_end 8 'nothing reads from it'
program report first -o /dev/full
expect_end 8 '/dev/full'

# Names of temporary files: a link there is removed itself, a FIFO is not waited for.
mkdir victim
touch victim/mine
ln -s victim .ck.partial
program import whole -o ck
expect_done
[[ -e victim/mine && -f ck/COMMIT && ! -L ck ]] || fail 'import went through a link'
ln -s victim .ex.partial
ln -s victim .ex.old
program export $checkpoint -o ex
expect_done
[[ -e victim/mine && -f ex/config.json && ! -L ex ]] || fail 'export went through a link'
echo other >other.txt
ln -s other.txt x.bin.partial
cp text.txt before
program tokenize --tokenizer bytes -o x.bin text.txt
expect_done
mkfifo y.bin.partial
program tokenize --tokenizer bytes -o y.bin text.txt
expect_done
[[ $(<other.txt) == other ]] || fail 'tokenize wrote through a link'
cmp x.bin y.bin || fail 'the tokens'
rm -rf out
mkdir -p out/checkpoints
ln -s ../../victim out/checkpoints/.step-00000001.partial
mkfifo out/checkpoints/.write-probe out/step_times.json.partial out/trace-rank0.json.partial
job 1 train run.toml --set train.steps=2 --set checkpoint.every=1 --set metrics.trace_steps='[1,2]'
expect_done
[[ -e victim/mine && -f out/step_times.json && -f out/trace-rank0.json ]] || fail 'temporary files of a run'
"$TRIREME" verify out/checkpoints/step-00000001 >verified.txt || fail 'a save beside a link'
rm -rf out
mkdir out
ln -s ../text.txt out/.job.lock
program train run.toml --set train.steps=1
expect_end 8 'out/.job.lock: is not a regular file'
cmp text.txt before || fail 'the lock was written through a link'
rm -rf out page ck ex x.bin* y.bin* hard soft read.html victim before verified.txt other.txt

# A limit on the size of files: exit code 8, and nothing is left behind.
rm -rf out
touch out.txt err.txt
listing >before
limited() {  # limited KIB ARGUMENTS: trireme with files of at most KIB; its output goes through pipes
  last="$*"
  local kib=$1
  shift
  status=0
  (
    ulimit -f "$kib"
    exec "$TRIREME" "$@"
  ) 2> >(cat >err.txt) | cat >out.txt || status=$?
  ((status == 8)) || fail "exit code $status, expected 8, of: $last"
  nothing_new
}
limited 16 tokenize --tokenizer bytes -o large.bin text.txt
limited 16 tokenize --tokenizer bytes -o large.idx text.txt
limited 16 plan run.toml --ranks 1 --machine h100 --trace trace.json --set batch.global=128
limited 16 export $checkpoint -o exported
listing >before
limited 4096 import whole -o imported  # 4 MiB: Open MPI needs some itself
status=0
(
  ulimit -f 1
  exec "$TRIREME" plan run.toml --ranks 4 --show schedule
) >out.txt 2> >(cat >err.txt) || status=$?
((status == 8)) || fail "plan into a limited file ended with $status"

# SIGTERM ends a start that does not come to its end: not for 20 s, in which a busy machine gets to the thread that waits for it.
slow=$(printf 'train.begin:slow,%.0s' {1..400})
TRIREME_FAULT=train.begin:stop,${slow%,} "$TRIREME" train run.toml --set checkpoint.at_end=true >out.txt 2>err.txt &
pid=$!
for ((i = 0; i < 2400; ++i)); do
  [[ $(ps -o stat= -p $pid) != T* ]] || break
  sleep 0.05
done
kill -TERM $pid
kill -CONT $pid
status=0
wait $pid || status=$?
((status == 143)) || fail "SIGTERM at the start ended it with $status"
nothing_new

# Control characters of files and of the environment do not reach a terminal.
raw() { LC_ALL=C grep -aPq '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]' out.txt err.txt; }
shown() {  # shown TEXT: the last command printed it, and nothing raw
  ! raw || fail "control characters after: $last"
  grep -qF -- "$1" out.txt err.txt || fail "no $1 after: $last"
}
mkdir strange
python3 - <<'PYTHON'
import json
config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 257, "hidden_size": 32, "intermediate_size": 64,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "evil\x1b]0;x\x07\x9b": 1}
json.dump(config, open("strange/config.json", "w"))
open("strange/rows.csv", "w").write("id\x1b[2J,id\x1b[2J\n1,2\n")
open("strange/metrics.jsonl", "wb").write(b'{"step":1,"loss":1}\n{"step":2,"lo\x1b[2J\xc2\x9b"\n')
PYTHON
sed -e '/^\[model\]/,/^\[data\]/{/^\[/!d}' run.toml >from.toml
program plan from.toml --ranks 1 --set model.from=strange
shown 'evil\x1b]0;x\x07'
program plan run.toml --ranks 1 --machine h100 --validate strange/rows.csv
shown '\x1b[2J'
program report strange -o strange.html
expect_end 2 'strange/metrics.jsonl: not the metrics of a run: line 2: no JSON'
! raw || fail 'control characters of a line of metrics'
TRIREME_LOG=$'a\x1b[2Jb' program plan run.toml --ranks 1
shown '\x1b[2Jb'
