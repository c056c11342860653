# SPDX-License-Identifier: Apache-2.0
#
# Programs that others wrote read what a small run writes: lm-evaluation-harness, CTranslate2 and transformers 4 the export,
# polars and pandas metrics.jsonl, HolisticTraceAnalysis the traces, Megatron Core a token file. Each is installed by pip
# into an environment in ${TRIREME_CACHE:-~/.cache/trireme}; one that cannot be is named as not tried.
# timeout: 2400
# labels: long
source "$TRIREME_SOURCE/tests/cli/small_run.sh"
source "$TRIREME_SOURCE/tests/support/python.sh"

clients=${TRIREME_CACHE:-$HOME/.cache/trireme}/clients
if [[ ! -x $clients/bin/python ]]; then
  "$python" -m venv "$clients"
  # Packages of the environment with PyTorch are found behind those that are installed here.
  "$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
    >"$("$clients/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch.pth"
fi
# client NAME PIP-ARGUMENTS...: installs a package; its version. False where it cannot be.
client() {
  local name=$1
  shift
  "$clients/bin/python" -m pip install --quiet --retries 1 --timeout 30 "$@" >pip.txt 2>&1 || {
    not_tried "$name: $(tail -n 1 pip.txt)"
    return 1
  }
  "$clients/bin/python" -c 'import importlib.metadata as m, sys; print(sys.argv[1], m.version(sys.argv[1]))' "$name"
}
# reads CLIENT: Python on standard input, by which CLIENT reads what the run wrote.
reads() { timeout 900 env HF_HUB_OFFLINE=1 "$clients/bin/python" - >client.txt 2>&1 || { cat client.txt; fail "$1"; }; }

head -c 4000 text.txt >valid.txt
"$TRIREME" tokenize --tokenizer bytes -o valid.bin valid.txt >/dev/null
"$TRIREME" tokenize --tokenizer bytes -o pair.idx text.txt >/dev/null
job 2 train run.toml --set train.steps=140 --set train.eval_every=120 --set data.validation=valid.bin --set metrics.trace_steps=[3] \
  --set run.export=end --set run.output=out
expect_done

if client transformers transformers==4.57.6; then
  program evaluate out/export --data valid.bin --seq-len 32
  expect_done
  loss=$(grep -oE ' loss=[0-9.]+' out.txt | cut -d= -f2)
  LOSS=$loss reads 'transformers 4.57: the loss of the export' <<'PYTHON'
import array, os, torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained("out/export", dtype=torch.float32)
tokenizer = transformers.AutoTokenizer.from_pretrained("out/export")
assert tokenizer("the ship")["input_ids"] == list(b"the ship"), tokenizer("the ship")
ids = torch.tensor(array.array("H", open("valid.bin", "rb").read()).tolist())
total = 0
with torch.no_grad():
    for at in range(0, len(ids) - 1, 32):
        row = ids[at : at + 33]
        total += torch.nn.functional.cross_entropy(model(row[None, :-1]).logits[0], row[1:], reduction="sum").item()
assert abs(total / (len(ids) - 1) - float(os.environ["LOSS"])) < 1e-5, (total / (len(ids) - 1), os.environ["LOSS"])
PYTHON
fi

if client lm_eval 'lm_eval[hf]==0.4.13'; then
  python3 - <<'PYTHON'
import json, random
random.seed(1)
words = "the ship has three banks of oars and sails to island with wind".split()
with open("questions.jsonl", "w") as file:
    for _ in range(40):
        endings = random.sample(words, 3)
        json.dump({"context": " ".join(random.sample(words, 4)), "endings": endings, "label": random.randrange(3)}, file)
        file.write("\n")
PYTHON
  cat >ship.yaml <<'YAML'
task: ship
dataset_path: json
dataset_kwargs: {data_files: {test: questions.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{context}}"
doc_to_choice: "{{endings}}"
doc_to_target: "{{label}}"
metric_list: [{metric: acc}, {metric: acc_norm}]
YAML
  program evaluate out/export --choices questions.jsonl
  expect_done
  PRINTED=$(cat out.txt) reads 'lm_eval: accuracy of the export' <<'PYTHON'
import lm_eval, os
printed = dict(word.split("=") for word in os.environ["PRINTED"].split())
found = lm_eval.simple_evaluate(model="hf", model_args="pretrained=out/export,dtype=float32", tasks=["ship"], device="cpu",
                                task_manager=lm_eval.tasks.TaskManager(include_path="."))["results"]["ship"]
for theirs, ours in (("acc,none", "accuracy"), ("acc_norm,none", "accuracy_norm"), ("acc_stderr,none", "accuracy_stderr")):
    assert abs(found[theirs] - float(printed[ours])) < 1e-6, (found, printed)
PYTHON
fi

if client ctranslate2 ctranslate2; then
  program generate out/export --prompt 'the ship has' --tokens 24
  expect_done
  PRINTED=$(cat out.txt) reads 'CTranslate2: what the converted export generates' <<'PYTHON'
import ctranslate2, json, os
ctranslate2.converters.TransformersConverter("out/export").convert("converted", force=True)
config = json.load(open("converted/config.json"))
config.update({key: "<eos>" for key, value in config.items() if value is None})  # a null bos_token cannot be loaded
json.dump(config, open("converted/config.json", "w"))
generator = ctranslate2.Generator("converted", device="cpu", compute_type="float32")
import transformers
tokenizer = transformers.AutoTokenizer.from_pretrained("out/export")
prompt = tokenizer.convert_ids_to_tokens(tokenizer("the ship has")["input_ids"])
ids = generator.generate_batch([prompt], max_length=36, sampling_topk=1, include_prompt_in_result=True)[0].sequences_ids[0]
text = bytes(i for i in ids if i < 256).decode()
assert len(text) >= 30 and os.environ["PRINTED"][:30] == text[:30], (text, os.environ["PRINTED"])
PYTHON
fi

if client polars polars && client pandas pandas; then
  reads 'polars and pandas: metrics.jsonl' <<'PYTHON'
import io, json, pandas, polars
lines = open("out/metrics.jsonl").readlines()
rows = [json.loads(line) for line in lines]
wanted = [r["eval_loss"] for r in rows if "loss" not in r]
assert len(rows) == 141 and len(wanted) == 1
table = polars.read_ndjson("out/metrics.jsonl", infer_schema_length=None)
assert table.height == 141 and table["eval_loss"].drop_nulls().to_list() == wanted
assert table["loss"].drop_nulls().len() == 140
first = polars.read_ndjson(io.StringIO("".join(lines[:100])))
assert {"eval_loss", "eval_tokens", "eval_seconds"} <= set(first.columns), first.columns
frame = pandas.read_json("out/metrics.jsonl", lines=True, precise_float=True)
assert frame["eval_loss"].dropna().to_list() == wanted and frame["gemm"].ffill().notna().all()
PYTHON
fi

if client HolisticTraceAnalysis HolisticTraceAnalysis; then
  reads 'HolisticTraceAnalysis: the traces of two ranks' <<'PYTHON'
import json
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={rank: f"out/trace-rank{rank}.json" for rank in (0, 1)}, trace_dir=".")
for rank in (0, 1):
    ops = [e for e in json.load(open(f"out/trace-rank{rank}.json"))["traceEvents"] if e["ph"] == "X"]
    assert len(analysis.t.get_trace(rank)) >= len(ops) > 20, (rank, len(ops))
PYTHON
fi

if client megatron-core --no-deps megatron-core; then
  reads 'Megatron Core: a token file' <<'PYTHON'
import numpy
from megatron.core.datasets.indexed_dataset import IndexedDataset
data = IndexedDataset("pair")
text = open("text.txt", "rb").read()
assert len(data) == 1 and numpy.array_equal(data[0], [*text, 256]), data[0][:20]
PYTHON
fi
