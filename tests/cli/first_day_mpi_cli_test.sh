# SPDX-License-Identifier: Apache-2.0
#
# First steps of a new user: a run file by `init`, a trial by `train --try`, the report at the end, completion and manual
# pages.
# timeout: 300
# Fault, plans: `init`: too narrow tokens -> exit code 3
# Fault, plans: `init`: ids below a tenth of the vocabulary, no tokenizer -> warning
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

# init: its file passes plan and train, has a reason for each key, and is never overwritten.
split -l 20 -d text.txt part.
program tokenize --tokenizer bytes --validation 0.1 -o data.bin part.*
expect_done
for ranks in 1 3; do
  rm -f first.toml
  program init --from tiny --tokenizer bytes --data data.bin --ranks "$ranks" --seq-len 64 -o first.toml
  expect_done
  grep -q '^validation = .*data-validation.bin' first.toml || fail 'the validation file beside the data is not used'
  if grep -E '^[a-z_]+ = ' first.toml | grep -v ' # ' >out.txt; then fail 'a key without a reason'; fi
  steps=$(sed -n 's/^steps = \([0-9]*\) .*/\1/p' first.toml) every=$(sed -n 's/^eval_every = \([0-9]*\) .*/\1/p' first.toml)
  ((steps % every == 0)) || fail "$steps steps are not evaluated at their end (train.eval_every = $every)"
  program plan first.toml --ranks "$ranks"
  expect_done
  ((ranks == 1)) || job "$ranks" train first.toml --set train.steps=4 --set train.eval_every=2
  ((ranks == 1)) || expect_done
done
[[ -s runs/first/report.html ]] || fail 'metrics.report wrote no report'
grep -q 'eval_loss' runs/first/report.html || fail 'the report lacks the validation loss'
cp first.toml before.toml
program init --from tiny --tokenizer bytes --data data.bin --ranks 2 -o first.toml
expect_end 2 'first.toml exists and is left as it is'
cmp first.toml before.toml || fail 'init wrote over a run file'
printf '{"text": "the ship"}\n%.0s' 1 2 3 >web.jsonl
program evaluate runs/first/export --data web.jsonl
expect_end 3 'it is JSON lines; tokenize it first: trireme tokenize --tokenizer TOKENIZER --field text -o web.bin web.jsonl'
program init --from runs/first/export --data data.bin --ranks 1 --seq-len 32 -o continued.toml
expect_done
grep -q '^from = "runs/first/export"' continued.toml || fail 'the weights are not where training begins'
program train continued.toml --set train.steps=2
expect_done
program init --from runs/first/export/config.json --data data.bin --ranks 1 --seq-len 32 -o anew.toml
expect_done
! grep -q ': 1 epochs' ./*.toml || fail '1 epochs'
! grep -q '^from' anew.toml || fail 'a config.json has no weights'
grep -q '^tokenizer = "bytes"' anew.toml || fail 'the tokenizer beside a config.json is left out'
mkdir model && cp runs/first/export/config.json model
printf '{"model": {"type": "BPE", "vocab": {"</s>": 0, "s": 1, "h": 2}, "merges": []}, "added_tokens": [{"id": 0, "content": "</s>", "special": true}]}' >model/tokenizer.json
# The sidecar has the tokenizer that made the tokens: another one is refused; tokens without a sidecar are taken.
program init --from model --data data.bin --ranks 1 --seq-len 32 -o beside.toml
expect_end 3 "data.bin was tokenized with bytes" "the run's tokenizer is hf:model/tokenizer.json" 'with --tokenizer'
[[ ! -e beside.toml ]] || fail 'a refused init wrote a run file'
cp data.bin foreign.bin
program init --from model --data foreign.bin --ranks 1 --seq-len 32 -o beside.toml
expect_done
grep -q '^tokenizer = "hf:model/tokenizer.json" ' beside.toml || fail 'the tokenizer beside a config.json is not that of the run'
grep -q '^vocab_size = 257 ' beside.toml || fail 'a tokenizer beside a config.json shrinks its vocabulary'
# Tokens of another tokenizer: two bytes for a vocabulary that needs four, or ids that fill a corner of it; no tokenizer.
sed 's/"vocab_size": *[0-9]*/"vocab_size": 128256/' model/config.json >model/large.json
head -c "$(($(stat -c %s data.bin) / 4 * 4))" data.bin >even-words.bin
head -c "$(($(stat -c %s data.bin) / 4 * 4 - 2))" data.bin >odd-words.bin
for data in even-words.bin odd-words.bin; do
  program init --from model/large.json --data "$data" --ranks 1 --seq-len 32 -o other.toml
  expect_end 3 "$data: tokens of two bytes, made for a vocabulary of at most 65,536 ids; this model has 128256"
done
mkdir bare && sed 's/"vocab_size": *[0-9]*/"vocab_size": 5000/' model/config.json >bare/config.json
program init --from bare --data data.bin --ranks 1 --seq-len 32 -o bare.toml
expect_done
grep -q 'warning.* --from bare: there is no tokenizer with the model' err.txt || fail 'a model without a tokenizer is not named'
grep -q 'warning.* data.bin: none of .* tokens in a sample has an id above .* vocabulary of 5000' err.txt || fail 'no warning of other ids'
program plan anew.toml --ranks 1
expect_done
program init --from tinny --tokenizer bytes --data data.bin --ranks 2 -o other.toml
expect_end 2 '--from tinny: no such file or folder, and no name' 'llama3-8b'
program init --from tiny --data data.bin --ranks 2 -o other.toml
expect_end 2 '--from tiny has no vocabulary of its own'
printf 'the ship has oars and sails..\001%.0s' {1..60} >even.txt
program init --from tiny --tokenizer bytes --data even.txt --seq-len 64 --ranks 2 -o other.toml
expect_end 3 'even.txt' 'is outside the vocabulary of 257'
program init --from llama3-405b --tokenizer bytes --data data.bin --ranks 1 --machine h100 --seq-len 64 -o other.toml
expect_end 2 '1 rank of h100 is too few for this model'
[[ ! -e other.toml ]] || fail 'a refused init wrote a run file'

# Slips on the command line.
program trian first.toml
expect_end 2 '"trian" is not a command; did you mean train'
program train run.toml --set train.steps 50
expect_end 2 'argument was not expected: 50. --set takes SECTION.KEY=VALUE without a blank, not train.steps'
job 3 train run.toml --set train.steps=50 lr.warmup_steps=2
expect_end 2 'argument was not expected: lr.warmup_steps=2. Each key needs its own --set: --set lr.warmup_steps=2. See `trireme train --help`'
[[ $(grep -c 'trireme: error' err.txt) == 1 ]] || fail 'every rank prints a mistake of the command line'
# shellcheck disable=SC2086  # several options in one variable
launch $MPIEXEC $MPIEXEC_FLAGS -n 1 "$TRIREME" train run.toml : -n 1 "$TRIREME" train run.toml --try
expect_end 2 '--try requires a value'
program train run.toml --steps 50
expect_end 2 '--steps is not an option of train; keys of the run file are set with --set SECTION.KEY=VALUE'
program generate runs/first/export --prompt ship --stop ''
expect_end 2 '--stop is empty, which would end every text at once'
program generate runs/first/export --prompt ship --tokens 80
expect_done
grep -q 'warning runs/first/export: prompt and --tokens come to 84 tokens, .* at most 64' err.txt || fail 'a text longer than the model knows is not warned of'
program generate runs/first/export --prompt ship --tokens 60
expect_done
[[ ! -s err.txt ]] || fail 'a text of the length that the model knows is warned of'
program generate runs/first/export --prompt ship --tokens 1 --logits nowhere/logits
expect_end 8 'nowhere/'
! grep -q MPI_ABORT err.txt || fail 'MPI_ABORT ends what rank 0 can tell all'
program generate out --promt ship
expect_end 2 '--promt is not an option of generate; did you mean --prompt'

# A job of TorchTitan: the run file is one that plan takes, and lists what it has no counterpart for.
cat >job.toml <<'TOML'
[job]
description = "a small job"
[model]
name = "llama3"
flavor = "debugmodel"
[training]
local_batch_size = 2
seq_len = 64
steps = 20
dataset = "c4_test"
[lr_scheduler]
warmup_steps = 2
[validation]
enable = true
TOML
program init --from-torchtitan job.toml --tokenizer bytes --data data.bin --ranks 2 -o titan.toml
expect_done
grep -q 'training.dataset = "c4_test": --data' out.txt || fail 'a field without a counterpart is not listed'
grep -q '# *training.dataset = "c4_test": --data' titan.toml || fail 'the run file does not list the fields without a counterpart'
grep -qE '^no_decay = \[\] +# TorchTitan decays all parameters' titan.toml || fail 'the weight decay of all parameters is not written'
grep -qE '^min_ratio = 0(\.0)? +# TorchTitan' titan.toml || fail 'the end of the learning rate is not written'
program plan titan.toml --ranks 2
expect_done
job 2 train titan.toml --set train.steps=2
expect_done
program init --from-torchtitan llama3:llama3_8b --data data.bin --ranks 2 -o module.toml
expect_end 2 "'--module', 'llama3', '--config', 'llama3_8b'" 'give job.json'
sed 's/flavor = .*/flavor = "9B"/' job.toml >unknown.toml
program init --from-torchtitan unknown.toml --data data.bin --ranks 2 -o module.toml
expect_end 2 'model.name: llama3 9B is not known here' 'Give the model with --from as well'
program init --data data.bin --ranks 2 -o module.toml
expect_end 2 '--from is required, or --from-torchtitan or --from-lingua'

# A configuration of Lingua.
cat >job.yaml <<'YAML'
name: small   # a small run
steps: 1_000
optim:
    lr: 3e-3
    warmup: 20
distributed:
    fsdp_type: full_shard
model:
    dim: 64
    n_layers: 2
    n_heads: 4
data:
    batch_size: 2
    seq_len: 64
    tokenizer:
        name: bytes
YAML
program init --from-lingua job.yaml --data data.bin --ranks 2 -o lingua.toml
expect_end 2 'job.yaml has no vocabulary' '--tokenizer'
program init --from-lingua job.yaml --tokenizer bytes --data data.bin --ranks 2 -o lingua.toml
expect_done
grep -qE '^no_decay = \[\] +# Lingua decays all parameters' lingua.toml || fail 'the weight decay of all parameters is not written'
program plan lingua.toml --ranks 2
expect_done
job 2 train lingua.toml --set train.steps=2
expect_done

# --help fits the terminal.
for command in '' init train plan submit tokenize generate evaluate doctor; do
  # shellcheck disable=SC2086  # "" is the front page
  COLUMNS=90 "$TRIREME" $command --help >help.txt
  awk -v most=90 'length > most && NF > 2 { print; wide = 1 } END { exit wide }' help.txt >out.txt || fail "trireme $command --help is wider than 90 columns"
done

# Directories in the place of a run, a checkpoint, a page.
program report runs
expect_end 2 'runs: holds no metrics.jsonl; give the run.output of a run, such as runs/continued'
program report runs/first/metrics.jsonl
expect_end 2 'runs/first/metrics.jsonl: is a file; give the directory of the run that wrote it, such as runs/first'
program report runs/first -o runs
expect_end 8 'cannot write runs: Is a directory; name a file in it'
program report runs/first -o pages-of-runs/first.html
expect_done
[[ -s pages-of-runs/first.html ]] || fail 'the page is not in the directory that was named'
program tokenize --tokenizer bytes -o runs text.txt
expect_end 8 'cannot write runs: Is a directory; name a file in it'
job 2 train run.toml --set train.steps=2 --set checkpoint.at_end=true --set run.output=saved --set batch.micro=8
expect_done
grep -q ': 1 microbatch of 8 on each of 2 dp ranks' out.txt || fail 'one microbatch is not one'
program generate saved/checkpoints/step-00000001 --prompt ship
expect_end 4 'step-00000001: no such checkpoint; in saved/checkpoints there are step-00000002'
# Another tokenizer than the model's: a warning, as it may be intended.
sed 's/^vocab_size = .*/vocab_size = 300/' run.toml >wide.toml
program train wide.toml --set train.steps=1 --set run.output=wide --set run.export=end
expect_done
printf '{"model": {"type": "BPE", "vocab": {"</s>": 0, "s": 1, "h": 2, "i": 3, "p": 4}, "merges": []}, "added_tokens": [{"id": 0, "content": "</s>", "special": true}]}' >few.json
program generate wide/export --prompt ship --tokens 2 --tokenizer hf:few.json
expect_done
grep -q 'hf:few.json has 5 ids instead of 257, but wide/export was trained with bytes: leave --tokenizer out' err.txt || fail 'another tokenizer is taken without a word'

# Commands that need tokens print how to tokenize text.
cp text.txt words  # a name that is not one of text
program train run.toml --set data.train=words --set train.steps=1
expect_end 3 'words holds no tokens: it is plain text; tokenize it first: trireme tokenize --tokenizer TOKENIZER -o words.bin words'
expect_no_output

# train --try: a verdict, and nothing is left, neither in run.output nor in the folder for temporary files.
mkdir tmp
export TMPDIR=$work/tmp
job 2 train run.toml --try 3 --set train.steps=500 --set lr.warmup_steps=100 --set checkpoint.every=1 --set memory.budget=1GiB --set run.export=end
expect_done
grep -q '^saves    nothing: this is a trial (--try)$' out.txt || fail 'the trial has another word on saves'
! grep -q 'checkpoint.every = 0' out.txt err.txt || fail 'the trial speaks of settings that the run file has not'
grep -q '^try: 3 of 500 steps trained, loss ' out.txt || fail 'no verdict on the loss'
grep -q '^try: speed: .* tokens/s .*: 500 steps take ' out.txt || fail 'no verdict on the speed'
grep -q '^try: memory of rank 0: .*memory.budget = 1.*: it fits' out.txt || fail 'no verdict on the memory'
expect_no_output
[[ -z $(find tmp -name 'trireme-try-*') ]] || fail 'a trial left its folder behind'
job 2 train run.toml --try 2 --set data.train=none.bin
expect_end 3 'none.bin'
[[ -z $(find tmp -name 'trireme-try-*') ]] || fail 'a refused trial left its folder behind'
unset TMPDIR

# metrics.report: what fails is a warning.
mkdir -p out/report.html/full
program train run.toml --set metrics.report=true
expect_done
grep -q 'out/report.html was not written' err.txt out.txt || fail 'a report that cannot be written is not said'
rm -r out
export TRIREME_FAULT=export.write:throw
program train run.toml --set metrics.report=true --set run.export=end
unset TRIREME_FAULT
((status != 0)) || fail 'the export worked'
[[ -s out/report.html ]] || fail 'without its export the run has no report'
rm -r out

# Completion and manual pages know every command and its options.
program completion
expect_done
cp out.txt complete.bash
cat >try.bash <<'BASH'
source complete.bash
try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _trireme; printf '%s\n' "${COMPREPLY[*]}"; }
compopt() { :; }
try trireme ev
try trireme train --tr
try trireme generate m --device c
try trireme train run.toml --set sync.po
BASH
bash try.bash >completed.txt
printf '%s\n' evaluate --try 'cpu cuda' 'sync.policy=' | diff - completed.txt || fail 'completion'
program man pages
expect_done
[[ -s pages/trireme-run-file.5 ]] || fail 'no page of the run file'
if ! command -v groff >/dev/null; then
  not_tried 'manual pages: groff is not there'
  exit 0
fi
for page in pages/*; do
  warnings=$(groff -man -Tutf8 -ww "$page" 2>&1 >/dev/null) || fail "groff fails on $page"
  [[ -z $warnings ]] || fail "$page: $warnings"
  grep -qE '^\.TH .* 20[0-9]{2}-[0-9]{2}-[0-9]{2} trireme$' "$page" || fail "$page has no date"
done
"$TRIREME" --help | awk '/^Subcommands:/ { on = 1; next } !NF { on = 0 } on && /^  [a-z]/ { print $1 }' >commands.txt
(($(wc -l <commands.txt) >= 14)) || fail 'too few commands were found'
while read -r command; do
  "$TRIREME" "$command" --help >help.txt
  groff -man -Tascii -P-cbou "pages/trireme-$command.1" >page.txt
  for option in $(grep -oE '^ +(-[a-z], ?)?--[a-z-]+' help.txt | grep -oE -- '--[a-z-]+'); do
    [[ $option == --help ]] || grep -q -- "$option" page.txt || fail "trireme-$command.1 lacks $option"
  done
done <commands.txt
