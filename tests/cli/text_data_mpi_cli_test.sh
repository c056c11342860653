# SPDX-License-Identifier: Apache-2.0
#
# data.train takes text: losses are those of the token file that `trireme tokenize` writes, on any number of ranks, also
# when the job that tokenizes is killed, and when two jobs need the same tokens at once.
# timeout: 300
# processors: 2
# Fault, data: ranks killed while they tokenize -> parts stay; the next job continues on any number of ranks, with the
#   same ids
# Fault, data: two jobs that tokenize the same text at once -> one waits for the other's cache
# Fault, data: a rank fails while it tokenizes -> all end in seconds, exit code 3 with file and line
source "$TRIREME_SOURCE/tests/cli/small_run.sh"
source "$TRIREME_SOURCE/tests/support/processes.sh"
export TRIREME_CACHE=$work/cache

mkdir web
python3 - <<'PYTHON'
import gzip, json, random
random.seed(1)
words = open("text.txt").read().split()
def lines(count):
    return "".join(json.dumps({"text": " ".join(random.choices(words, k=random.randrange(1, 90))), "id": i}) + "\n" for i in range(count))
open("web/a.jsonl", "w").write(lines(16000))  # several units
gzip.open("web/b.jsonl.gz", "wt").write(lines(3000))
for i in range(40):
    open(f"web/c{i:02}.jsonl", "w").write(lines(20))
PYTHON

# One process, and several: the same bytes.
program tokenize --tokenizer bytes --field text -o offline.bin web/
expect_done
job 3 tokenize --tokenizer bytes --field text -o together.bin --threads 1 web/
expect_done
grep -q '^3 ranks, each ' out.txt || fail 'the bytes of the ranks are not printed'
for end in '' .ends .meta; do cmp "offline.bin$end" "together.bin$end" || fail "together.bin$end differs"; done
[[ ! -e together.bin.parts ]] || fail 'the parts stay'
zcat web/b.jsonl.gz >b.jsonl
# shellcheck disable=SC2086  # several options in one variable
launch $MPIEXEC $MPIEXEC_FLAGS -n 2 "$TRIREME" tokenize --tokenizer bytes --field text -o piped.bin - <b.jsonl
expect_end 2 'standard input cannot be divided among ranks'

# killed NAME RANKS ARGUMENTS...: starts a job and kills it when some parts are there.
killed() {
  local name=$1 ranks=$2 i
  shift 2
  # shellcheck disable=SC2086  # several options in one variable
  TRIREME_FAULT=data.tokenize:slow $MPIEXEC $MPIEXEC_FLAGS -n "$ranks" "$TRIREME" "$@" >killed.txt 2>&1 &
  local pid=$!
  for ((i = 0; i < 2400; ++i)); do
    (($(find . -name 'part-???????' | wc -l) < 5)) || break
    kill -0 $pid 2>/dev/null || fail "$name ended: $(cat killed.txt)"
    sleep 0.02
  done
  # shellcheck disable=SC2046  # several processes
  kill -9 $(ranks_of $pid) $pid || true
  wait $pid 2>/dev/null || true
  find . -name 'part-???????' | grep -q . || fail "$name left no parts"
}
killed 'tokenize' 2 tokenize --tokenizer bytes --field text -o again.bin --threads 1 web/
[[ ! -e again.bin ]] || fail 'a killed job left an output'
job 3 tokenize --tokenizer bytes --field text -o again.bin --threads 1 web/
expect_done
grep -qE 'again.bin: [1-9][0-9]* of [0-9]+ parts are there already' err.txt || fail 'the parts were not used'
for end in '' .ends .meta; do cmp "offline.bin$end" "again.bin$end" || fail "again.bin$end differs"; done
killed 'tokenize' 2 tokenize --tokenizer bytes --field text -o alone.bin --threads 1 web/
program tokenize --tokenizer bytes --field text -o alone.bin --threads 1 web/
expect_done
cmp offline.bin alone.bin || fail 'one process continues with other tokens'

# Losses of a run on text are those of the run on its tokens.
same_losses() {  # same_losses FILE FILE
  cat "$1" "$2" >both.jsonl
  json_check 'losses = {}
for row in rows:
    if "loss" in row: losses.setdefault(row["step"], []).append(row["loss"])
assert len(losses) == 6 and all(len(l) == 2 and abs(l[0] - l[1]) <= 1e-6 * l[0] for l in losses.values()), losses' both.jsonl
}
job 1 train run.toml --set data.train=offline.bin --set run.output=offline --set data.validation=offline.bin --set train.eval_every=3 --set train.eval_steps=2
expect_done
text=(train run.toml --set data.train=web/ --set data.validation='web/*.jsonl*' --set train.eval_every=3 --set train.eval_steps=2)
killed 'train' 2 "${text[@]}" --set run.output=none
[[ ! -e none/metrics.jsonl ]] || fail 'a killed job trained'
job 4 "${text[@]}" --set run.output=text4
expect_done
grep -qE 'data.train web/: [1-9][0-9]* of [0-9]+ parts are there already' err.txt || fail 'the parts of a killed job were not used'
same_losses offline/metrics.jsonl text4/metrics.jsonl
for ranks in 1 2; do
  job "$ranks" "${text[@]}" --set run.output="text$ranks"
  expect_done
  ! grep -q 'documents are in' err.txt || fail 'the cache was made twice'
  same_losses offline/metrics.jsonl "text$ranks/metrics.jsonl"
done
! find web/.trireme-tokens -name '*.building' | grep -q . || fail 'the folder of parts stays'

# Two jobs at once make one cache; a later start finds it where the files may not be written.
rm -rf web/.trireme-tokens
export TRIREME_FAULT=data.tokenize:slow
beside first 2 "${text[@]}"
beside second 1 "${text[@]}"
for name in first second; do
  ended $name
  expect_done
  cp err.txt $name.log
  same_losses offline/metrics.jsonl out/metrics.jsonl
done
unset TRIREME_FAULT
(($(cat first.log second.log | grep -c 'data.train web/: .* documents are in') == 1)) || fail 'two jobs made a cache each'

# A rank that fails ends all.
echo 'no json' >>web/a.jsonl
job 2 "${text[@]}" --set run.output=none
expect_end 3 'web/a.jsonl, line 16001: it is not a JSON object'
expect_soon
job 2 "${text[@]}" --set run.output=none --set data.train='web/#skip_bad=1' --set train.eval_every=0
expect_done
grep -q '1 line cannot be read and is left out' err.txt || fail 'a bad line is not mentioned'
program train run.toml --set data.train=web/ --set data.tokenizer= --set run.output=none
expect_end 2 'web/ is text, which needs data.tokenizer'
program train run.toml --set data.train='missing/*.jsonl' --set run.output=missing
expect_end 3 'no file matches missing/*.jsonl'
