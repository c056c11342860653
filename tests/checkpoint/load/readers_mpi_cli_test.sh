# SPDX-License-Identifier: Apache-2.0
#
# Others read our files: h5py every parameter and moment in full through the index, whatever mesh wrote it, and
# transformers the tokenizer of an export.
# timeout: 600
# labels: slow
# Fault, loading: another mesh -> tensors bit for bit, losses to 1e-6, the next sample
source "$TRIREME_SOURCE/tests/support/python.sh"
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

sed -e 's/^at_end = .*/every = 3/' -e 's/^global = .*/global = 12/' -e 's/^micro = .*/micro = 1/' -i run.toml

# Saved on 2x2, loaded and saved again by 1, 2, 3 and 6 ranks, and back on 2x2: a step that is skipped changes neither
# parameters nor moments. Each is a milestone, since the next save replaces others that end in skipped steps. Files of one
# rank, and of groups of 2 and 4.
job 4 train run.toml --set mesh.replicate=2 --set train.steps=3
expect_done
skip() {  # skip RANKS OUTPUT STEP [--set ...]: loads, skips the step, saves
  local ranks=$1 output=$2 step=$3
  shift 3
  TRIREME_FAULT=grad.reduce:nan:0:$((step - 1)) job "$ranks" train run.toml --set run.output="$output" \
    --set train.steps="$step" --set checkpoint.every=1 --set checkpoint.keep_every=1 "$@"
  expect_done
  grep -q "step $step: .* the step is skipped" err.txt || fail "step $step was not skipped"
  "$TRIREME" verify "$output/checkpoints/step-0000000$step" >/dev/null || fail "$output: damaged"
}
for ranks in 1 2 3 6; do
  cp -r out "on-$ranks"
  skip "$ranks" "on-$ranks" 4 --set checkpoint.ranks_per_file=$((ranks == 6 ? 4 : 1))
  skip 4 "on-$ranks" 5 --set mesh.replicate=2 --set checkpoint.ranks_per_file=$((ranks == 3 ? 2 : ranks == 6 ? 4 : 1))
  skip 4 "on-$ranks" 6 --set mesh.tensor=2 --set checkpoint.ranks_per_file=$((ranks == 2 ? 2 : 1))
done
[[ $(ls on-6/checkpoints/step-00000004/shards) == $'dp-00000-tp-00.h5\ndp-00004-tp-00.h5' ]] || fail 'groups of 4'
[[ $(ls on-3/checkpoints/step-00000005/shards) == $'dp-00000-tp-00.h5\ndp-00002-tp-00.h5' ]] || fail 'groups of 2'
[[ $(ls on-2/checkpoints/step-00000006/shards) == $'dp-00000-tp-00.h5\ndp-00000-tp-01.h5' ]] || fail 'groups of 2 with tensor'


cat >same.py <<'PYTHON'
"""same.py REFERENCE OTHER...: every dataset of the indices is equal, bit for bit, and none has a NaN."""
import json
import sys
import h5py
import numpy

def tensors(path):
    with h5py.File(path + "/index.h5") as index:
        return {f"{group}/{name}": index[group][name][()] for group in ("model", "first_moment", "second_moment") for name in index[group]}

def by_manifest(path):
    """The same by docs/checkpoint-format.md alone: the manifest, and plain reading at its offsets."""
    with h5py.File(path + "/index.h5") as index:
        manifest = json.loads(index["manifest"][()].tobytes())
    assert manifest["format"] == "trireme checkpoint" and manifest["version"] == 2
    whole = {f"{group}/{name}": numpy.full(numpy.prod(shape), numpy.nan, "<f4")
             for group in ("model", "first_moment", "second_moment") for name, shape in manifest["parameters"]}
    for file in manifest["files"]:
        for dataset in file["datasets"]:
            for parameter, first, length, stride, count, offset, _ in dataset["slices"]:
                part = numpy.fromfile(path + "/" + file["path"], "<f4", length * count, offset=dataset["byte_offset"] + 4 * offset)
                values = whole[dataset["name"].split("/")[0] + "/" + manifest["parameters"][parameter][0]]
                for i in range(count):
                    values[first + i * stride:][:length] = part[i * length:][:length]
    most = max(len(dataset["slices"]) for file in manifest["files"] for dataset in file["datasets"])
    assert most <= 3 * len(manifest["parameters"]), "a matrix's columns are one slice"
    return whole

reference = tensors(sys.argv[1])
assert len(reference) == 3 * 21, len(reference)
assert any(numpy.abs(value).max() > 0 for name, value in reference.items() if name.startswith("second_moment"))
for path in sys.argv[2:]:
    other, plain = tensors(path), by_manifest(path)
    assert other.keys() == reference.keys(), path
    for name, value in reference.items():
        assert value.dtype == numpy.float32 and not numpy.isnan(value).any(), name
        assert value.tobytes() == other[name].tobytes() == plain[name].tobytes(), (path, name)
with h5py.File(sys.argv[1] + "/index.h5") as index:
    assert index.attrs["step"] == 3 and index.attrs["tokens"] == 3 * 12 * 32 and "seq_len = 32" in index.attrs["run_file"]
PYTHON
echo "checked by $("$python" -c 'import h5py; print("h5py", h5py.__version__)')"
"$python" same.py out/checkpoints/step-00000003 on-*/checkpoints/step-0000000? 2>err.txt || fail 'h5py reads other values'
"$TRIREME" export out/checkpoints/step-00000003 -o hf --dtype fp32 >/dev/null
"$python" - out/checkpoints/step-00000003 hf <<'PYTHON' 2>err.txt || fail 'the export has other values'
import sys
import h5py
from safetensors.numpy import load_file
with h5py.File(sys.argv[1] + "/index.h5") as index:
    exported = load_file(sys.argv[2] + "/model.safetensors")
    assert exported.keys() == index["model"].keys()
    for name, value in exported.items():
        assert value.tobytes() == index["model"][name][()].tobytes(), name
PYTHON

# The export continues a text alike wherever it runs. (Its logits are those of transformers: tests/checkpoint/load/families.sh.)
prompt='Oars and sails, three banks of them.'
program generate hf --tokenizer bytes --prompt "$prompt" --tokens 20
expect_done
mv out.txt alone
job 2 generate hf --tokenizer bytes --prompt "$prompt" --tokens 20
expect_done
cmp out.txt alone || fail 'two ranks that share the layers say something else'
job 3 generate hf --tokenizer bytes --prompt "$prompt" --tokens 1
expect_end 2 'mesh.tensor = 3' 'model.heads = 4' 'the nearest that works'

# AutoTokenizer loads what an export holds: the same ids as in the token files, and the same text back.
cat >auto_tokenizers.py <<'PYTHON'
"""auto_tokenizers.py TEXT DIRECTORY TOKENS...: AutoTokenizer of DIRECTORY makes of TEXT the ids in TOKENS (uint16) but for the document's end."""
import sys
import numpy
from transformers import AutoTokenizer

text = open(sys.argv[1], newline="").read()
for directory, path in zip(sys.argv[2::2], sys.argv[3::2]):
    tokenizer = AutoTokenizer.from_pretrained(directory)
    ids = tokenizer(text)["input_ids"]
    ours = numpy.fromfile(path, numpy.uint16).tolist()
    assert ours[-1] == tokenizer.eos_token_id, (ours[-1], tokenizer.eos_token_id)
    same = next((i for i, (a, b) in enumerate(zip(ids, ours)) if a != b), min(len(ids), len(ours) - 1))
    assert ids == ours[:-1], (directory, len(ids), len(ours), same, tokenizer.convert_ids_to_tokens(ids[same - 3 : same + 5]), tokenizer.convert_ids_to_tokens(ours[same - 3 : same + 5]))
    if not directory.endswith("unigram"):  # unigram normalizes white space and cannot represent unknown characters
        assert tokenizer.decode(ids) == text, directory
    print(f"{directory}: {len(ids)} ids", flush=True)
PYTHON
{ head -c 20000 text.txt; printf 'Gr\303\274\303\237e  an   alle:\n\tif (a != b) return "\342\232\223\360\237\232\242"; 12345\n\n'; } >mixed.txt
tokenized=()
with_tokenizer() {  # with_tokenizer NAME SPEC: an export of a checkpoint with this tokenizer, and the ids of mixed.txt
  "$TRIREME" export out/checkpoints/step-00000003 -o "$1" --tokenizer "$2" >/dev/null
  "$TRIREME" tokenize --tokenizer "$2" -o "$1.bin" mixed.txt >/dev/null
  tokenized+=("$1" "$1.bin")
}
with_tokenizer with-bytes bytes
if command -v spm_train >/dev/null; then
  spm_train --input=text.txt --model_prefix=unigram --vocab_size=80 --hard_vocab_limit=false --minloglevel=2 2>spm.log
  spm_train --input=text.txt --model_prefix=llama --model_type=bpe --vocab_size=400 --hard_vocab_limit=false --byte_fallback=true \
    --normalization_rule_name=identity --remove_extra_whitespaces=false --split_digits=true --user_defined_symbols='<pad>' --minloglevel=2 2>spm.log
  with_tokenizer with-unigram spm:unigram.model
  with_tokenizer with-llama spm:llama.model
else
  not_tried 'SentencePiece models: spm_train is not there'
fi
"$python" auto_tokenizers.py mixed.txt "${tokenized[@]}" >printed 2>err.txt || { cat printed; fail 'AutoTokenizer makes other ids'; }
cat printed
