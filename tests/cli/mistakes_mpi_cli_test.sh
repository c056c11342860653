# SPDX-License-Identifier: Apache-2.0
#
# Every mistake gets one message with its remedy and its exit code, within seconds, and leaves nothing half-written.
# timeout: 400
# Fault, start: ranks that the mesh does not fit, or started without PMIx -> one line of rank 0, exit code 2 or 5
# Fault, start: ranks with different run files or options -> exit code 2, both command lines at their first difference
# Fault, plans: mistakes in run files -> all at once, with line, key and the nearest valid one; exit code 2
source "$TRIREME_SOURCE/tests/cli/small_run.sh"
export OMPI_MCA_odls_base_sigkill_timeout=0  # or mpirun waits a second for ranks that it ends: dozens of times here

# refused CODE TEXT... -- ARGUMENTS: what `train run.toml ARGUMENTS` on two ranks ends with.
refused() {
  local wanted=()
  while [[ $1 != -- ]]; do
    wanted+=("$1")
    shift
  done
  shift
  job 2 train "${@}"
  expect_end "${wanted[@]}"
  expect_no_output
  expect_soon
}

# The run file.
refused 2 "nowhere.toml" "cannot read" -- nowhere.toml
refused 2 "data.seqlen" "did you mean data.seq_len" -- run.toml --set data.seqlen=8
refused 2 "found \"two\"" "integer" -- run.toml --set model.layers=two
refused 2 "batch.global" "set batch.global" -- run.toml --set batch.global=18 --set batch.micro=2
refused 2 "2 ranks" "mesh" -- run.toml --set mesh.shard=3
refused 2 "data-parallel rank" "tensor" -- run.toml --set batch.global=1 --set batch.micro=1
refused 2 'fp8 = "rowwise" requires precision.compute' -- run.toml --set precision.fp8=rowwise
refused 2 'model.layers.0.self_attn.k_proj.weight is 16 x 32, but "mx" requires multiples of 32' -- run.toml --set precision.compute=bf16 --set precision.fp8=mx
misspelt=(--set precision.compute=bf16 --set precision.fp8=rowwise --set 'precision.fp8_skip=["*dwon_proj*"]')
refused 2 '"*dwon_proj*" fits no weight' -- run.toml "${misspelt[@]}"
program plan run.toml --ranks 2 "${misspelt[@]}"
expect_end 2 '"*dwon_proj*" fits no weight'
refused 2 "cuda_graphs" "device.type" -- run.toml --set device.cuda_graphs=true --set device.type=cpu
refused 2 "nccl_max_ctas" "device.type" -- run.toml --set comm.nccl_max_ctas=8 --set device.type=cpu
refused 5 "nccl_max_ctas" "trains on CPUs" -- run.toml --set comm.nccl_max_ctas=8
refused 5 "computes on CPUs" -- run.toml --set device.cuda_graphs=true
sed 's/^seq_len/seqlen/; s/^heads = 4/heads = "4"/' run.toml >bad.toml
refused 2 "2 mistakes" "bad.toml:9: model.heads" "bad.toml:13: data.seqlen" -- bad.toml
[[ $(grep -cE '^trireme: error: .*2 mistakes|^ +bad.toml:(9|13): ' err.txt) == 3 ]] || fail 'the mistakes are not on lines of their own'
! grep -q MPI_ABORT err.txt || fail 'MPI_ABORT ends what all ranks know'
printf 'steps = \n' >bad.toml
refused 2 "bad.toml:1" "not valid TOML" -- bad.toml
head -c 4096 /dev/urandom >bad.toml
refused 2 "bad.toml" -- bad.toml

# plan and train find the same mistakes in a run file; --set takes one value, and leaves the run file unchanged.
for command in "train run.toml" "plan run.toml --ranks 2"; do
  # shellcheck disable=SC2086  # words
  program $command --set 'data.train=tokens*.bin'
  expect_end 2 'data.train' 'wildcards are not expanded'
  # shellcheck disable=SC2086
  program ${command/run.toml/--set train.steps=1 data.seq_len=8 run.toml}
  expect_end 2 'not expected' 'run.toml'
done
job 2 import weights -o imported
expect_end 2 'import runs on one rank, not on 2'
job 2 generate nowhere --prompt x
expect_end 4 'nowhere: holds no weights'
! grep -q MPI_ABORT err.txt || fail 'MPI_ABORT ends what all ranks of generate know'

# Fault 19: the ranks do not fit; reported at once.
job 3 train run.toml
expect_end 2 "3 ranks" "batch.global"
expect_soon

# Token files.
refused 3 "nowhere.bin" "nearest" -- run.toml --set data.train=nowhere.bin
head -c 1001 tokens.bin >cut.bin
refused 3 "cut.bin" "truncated" -- run.toml --set data.train=cut.bin
: >empty.bin
refused 3 "empty.bin" "empty" -- run.toml --set data.train=empty.bin
head -c 40 tokens.bin >short.bin
refused 3 "short.bin" "too few" -- run.toml --set data.train=short.bin
refused 3 "vocabulary of 100" "position 0" "model.vocab_size" -- run.toml --set model.vocab_size=100
{ head -c 60000 tokens.bin && printf '\377\377' && tail -c +60003 tokens.bin; } >beyond.bin
refused 3 "token 65535 at position 30000" "vocabulary" -- run.toml --set data.train=beyond.bin
refused 3 "beyond.bin" -- run.toml --set train.eval_every=1 --set data.validation=beyond.bin

refused 3 "nowhere.model" -- run.toml --set data.tokenizer=spm:nowhere.model
refused 3 "in the working directory; nothing is downloaded" -- run.toml --set data.tokenizer=hf:nowhere
printf '{"model": {"type": "BPE", "vocab": {"</s>": 0, "s": 1}, "merges": []}, "added_tokens": [{"id": 0, "content": "</s>", "special": true}]}' >few.json
refused 3 "data.tokenizer = hf:few.json has 2 ids, but token file tokens.bin holds token 256" "another tokenizer made it" -- run.toml --set data.tokenizer=hf:few.json
ln -s nowhere/tokens.bin moved.bin
refused 3 "moved.bin is a symbolic link to nowhere/tokens.bin, which does not exist" -- run.toml --set data.train=moved.bin
: >empty.jsonl
printf '{"text": ""}\n' >blank.jsonl
program tokenize --tokenizer bytes --field text -o none.bin empty.jsonl
expect_end 3 'text file empty.jsonl holds no document: nothing is written'
program tokenize --tokenizer bytes --field text -o none.bin empty.jsonl blank.jsonl
expect_end 3 'text file empty.jsonl and 1 more hold no document with text'
[[ ! -e none.bin ]] || fail 'a token file of nothing'

# Weights.
job 2 train run.toml --set train.steps=1 --set run.export=end
expect_done
mv out/export weights
rm -r out
cat >damage.py <<'PY'
import json, struct, sys
source, target, what = sys.argv[1:]
data = open(source, "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
name = "model.layers.1.mlp.up_proj.weight"
if what == "missing":  # the last one, so that no gap shows
    last = max((entry["data_offsets"][0], name) for name, entry in header.items() if name != "__metadata__")
    del header[last[1]]
    body = body[: last[0]]
    print(last[1])
elif what == "shape":
    header[name]["shape"] = header[name]["shape"][::-1]
elif what == "beyond":
    header[name]["data_offsets"][1] += 1 << 40
text = b"{" * size if what == "header" else json.dumps(header).encode()
length = 1 << 62 if what == "length" else len(text)
open(target, "wb").write(struct.pack("<Q", length) + text + (b"" if what == "cut" else body))
PY
for what in header length beyond cut missing shape; do
  cp -r weights "bad-$what"
  python3 damage.py weights/model.safetensors "bad-$what/model.safetensors" "$what" >>missing.txt
done
refused 4 "bad-header/model.safetensors" -- run.toml --set model.from=bad-header
refused 4 "bad-length/model.safetensors" -- run.toml --set model.from=bad-length
refused 4 "bad-beyond/model.safetensors" "up_proj" -- run.toml --set model.from=bad-beyond
refused 4 "bad-cut/model.safetensors" -- run.toml --set model.from=bad-cut
refused 4 "$(cat missing.txt)" "missing" -- run.toml --set model.from=bad-missing
refused 4 "model.layers.1.mlp.up_proj.weight" "shape" -- run.toml --set model.from=bad-shape
refused 4 "nowhere" -- run.toml --set model.from=nowhere
refused 2 "model.hidden_size" -- run.toml --set model.from=weights --set model.hidden_size=64
refused 2 "weights/config.json: is JSON, not a run file; \`trireme init --from weights/config.json" -- weights/config.json
mkdir run && cp run.toml run
refused 2 "run: is a directory, not a run file; its run file is run/run.toml" -- run
for command in 'export weights -o hf' 'inspect weights' 'verify weights'; do
  # shellcheck disable=SC2086  # words
  program $command
  expect_end 4 'weights: is a Hugging Face directory, not a checkpoint: a run takes its weights by model.from'
done
program inspect run
expect_end 4 'run: is not a checkpoint; name one, such as'
program verify nowhere
expect_end 4 'nowhere: no such checkpoint'
[[ ! -s out.txt ]] || fail 'no checkpoint passes for a damaged one'
program import weights -o imported
expect_done
program import weights -o imported
expect_end 4 'imported: exists already'
! grep -q MPI_ABORT err.txt || fail 'MPI_ABORT ends what the only rank knows'
program import weights -o /proc/imported
expect_end 8 '/proc/imported was not written: ' 'choose a directory that you may write to'
long=$(printf 'x%.0s' {1..300})
for command in "import weights -o $long" "generate weights --prompt ship --tokens 1 --logits $long" "plan --compare $long" \
  "train run.toml --set checkpoint.directory=$long" "report $long"; do
  # shellcheck disable=SC2086  # words
  program $command
  ((status != 1)) || fail 'a long name is taken for a bug'
  expect_end $status 'File name too long; give it a shorter name'
  expect_no_output
done
rm -r imported
job 2 train run.toml --set model.from=weights --set train.steps=1
expect_done
rm -r out

# Places to write.
: >a-file
job 2 train run.toml --set run.output=a-file/below
expect_end 8 "a-file/below" "run.output"
job 2 train run.toml --set run.output=/proc/trireme
expect_end 8 "/proc/trireme" "run.output"
mkdir -p out/export && echo "years of work" >out/export/thesis.tex
job 2 train run.toml --set run.export=end
expect_end 4 "thesis.tex"
[[ $(ls out) == export ]] || fail "a refused run wrote into run.output"
rm -r out

# Ranks with different run files.
contexts() {
  # shellcheck disable=SC2086
  launch $MPIEXEC $MPIEXEC_FLAGS -n 1 "$TRIREME" train $1 : -n 2 "$TRIREME" train $2
}
sed 's/^seq_len = 32/seq_len = 16/; s/^lr = 1e-2/lr = 0.5/' run.toml >other.toml
contexts run.toml other.toml
expect_end 2 "do not agree on the command line" "rank 0 has \`trireme train run.toml\`" "other.toml\`"
contexts run.toml "run.toml --set train.steps=7"
expect_end 2 "rank 0 has \`\`" "has \`--set train.steps=7\`"
contexts run.toml nowhere.toml
expect_end 2 "run.toml" "nowhere.toml"
expect_no_output
contexts "run.toml --set train.steps=2 --set batch.global=18 --set batch.micro=3" "./run.toml --set train.steps=2 --set batch.global=18 --set batch.micro=3"
expect_done  # the same path
