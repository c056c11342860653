# SPDX-License-Identifier: Apache-2.0
#
# Results of a run: a lower loss, metrics with every key, traces, the effective run file, an export that generates; and the same
# run again gives the same bits.
# timeout: 300
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

common=(--set train.steps=24 --set run.export=end --set "data.validation=[\"tokens.bin\"]" --set train.eval_every=8
        --set train.eval_steps=2 --set metrics.trace_steps=[3,4])
job 4 train run.toml "${common[@]}"
expect_done
! grep -E 'products|spare core' out.txt err.txt || fail "lines without a remedy"
[[ ! -s err.txt ]] || fail "something on standard error"
for text in "Trireme " "parameters.sharded" "threads " "24 steps are .* epochs" "saves    no checkpoints" "step=24 loss=.* memory=.* steps=24 time=.* left=0:00:00" "step=8 eval_loss=" "exported out/export" "^trained 24 steps in .*: loss .* to .*, validation .* tokens/s$" "^goodput [0-9.]*% of " "^  trireme generate out/export --prompt" "^  trireme report out$"; do
  grep -q "$text" out.txt || fail "no $text on standard output"
done

json_check '
import os
steps = [r for r in rows if "loss" in r]
evals = [r for r in rows if "eval_loss" in r]
assert [r["step"] for r in steps] == list(range(1, 25)), "a line a step"
assert [r["step"] for r in evals] == [8, 16, 24] and all("loss" not in r for r in evals)
assert steps[-1]["loss"] < steps[0]["loss"] - 1.5, (steps[0]["loss"], steps[-1]["loss"])
keys = """step time loss grad_norm lr tokens target_tokens step_seconds data_seconds exposed_comm_seconds tokens_per_second
tokens_per_second_per_rank mfu restart_count goodput memory_peak_bytes comm_bytes comm_calls skipped""".split()
categories = """parameters.sharded parameters.unsharded gradients.sharded gradients.unsharded optimizer activations
workspace communication data other""".split()
for r in steps:
    assert not set(keys) - set(r), set(keys) - set(r)
    for space in ("device", "host"):
        assert not set(categories) - set(r["memory_peak_bytes"][space])
    assert r["memory_peak_bytes"]["rss"] > 1 << 20
    assert r["tokens"] == r["step"] * 16 * 32 and r["target_tokens"] == 16 * 32
    assert r["mfu"] is None and r["skipped"] is False and r["restart_count"] == 0
    assert r["comm_calls"]["shard"]["all_gather"] > 0 and r["comm_bytes"]["shard"]["reduce_scatter"] > 0
    assert r["tokens_per_second"] > r["tokens_per_second_per_rank"] > 0
for r, line in zip(steps, (l for l in open(files[0]) if "\"loss\"" in l), strict=True):
    assert ("comm_bytes" in line and "flop_rule" in line and "gemm" in line) == (r["step"] == 1), "what does not change is written once"
    assert abs(r["epoch"] / r["step"] - 16 * 32 / (os.path.getsize("tokens.bin") / 2)) < 1e-4, r["epoch"]
later = [r["comm_bytes"]["shard"] for r in steps]
assert all(b == later[0] for b in later), "every step moves the same"
' out/metrics.jsonl

for rank in 0 1 2 3; do
  json_check '
events = rows[0]["traceEvents"]
lanes = {e["args"]["name"]: e["tid"] for e in events if e["name"] == "thread_name"}
assert set(lanes) == {"compute", "gather", "reduce"}, lanes
spans = [e for e in events if e["ph"] == "X"]
assert {e["args"]["step"] for e in spans} == {3, 4}
assert {e["tid"] for e in spans} == set(lanes.values())
assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in spans)
' out/trace-rank$rank.json
done
# Laid together: times from one moment, so that what all ranks do together ends on none before all have begun.
json_check '
names, together = set(), {}
for file in files:
    for e in json.load(open(file))["traceEvents"]:
        if e["name"] == "process_name": names.add((e["pid"], e["args"]["name"].split(" on ")[0]))
        if e["ph"] == "X" and e["name"].startswith("reduce_scatter"):
            together.setdefault((e["args"]["step"], e["args"]["op"]), []).append((e["ts"], e["ts"] + e["dur"]))
assert names == {(r, f"rank {r}") for r in range(4)}, names
assert together and all(len(spans) == 4 for spans in together.values())
for spans in together.values():
    assert max(begin for begin, _ in spans) <= min(end for _, end in spans) + 1, spans
    assert min(begin for begin, _ in spans) > 0, "the origin lies before the first step"
' out/trace-rank{0,1,2,3}.json
[[ ! -e out/trace-rank4.json ]] || fail "a trace of a rank that there is not"

# The run on one page: every number of its curves is one of metrics.jsonl.
program report out -o report.html
expect_done
python3 - <<'PYTHON' || fail 'the report'
import json, re
text = open("report.html").read()
rows = [json.loads(line) for line in open("out/metrics.jsonl")]
series = json.loads(re.search(r'id="series">(.*?)</script>', text, re.S)[1])[0]["series"]
for key in ("loss", "grad_norm", "lr", "tokens_per_second", "step_seconds", "eval_loss"):
    assert [tuple(point) for point in series[key]] == [(row["step"], row[key]) for row in rows if row.get(key) is not None], key
assert [bytes for _, bytes in series["memory_peak_bytes/device/total"]] == [row["memory_peak_bytes"]["device"]["total"] for row in rows if "loss" in row]
for part in ("<td>24 of 24</td>", "Timeline of step 4", "rank 3 on ", "Device memory over step 4", "Step times by rank", "<td>reduce_scatter</td>"):
    assert part in text, part
PYTHON
program report nowhere
expect_end 2 'nowhere: holds no metrics.jsonl; give the run.output of a run'

# The effective run file has every setting, and is a run file.
grep -q "^steps = 24 " out/run.toml || fail "the effective run file lacks what --set gave"
program plan out/run.toml --ranks 4
expect_done
json_check 'assert rows[0]["architectures"] == ["LlamaForCausalLM"] and rows[0]["eos_token_id"] == 256' out/export/config.json
program generate out/export --prompt "the ship" --tokens 20
expect_done
(($(wc -c <out.txt) == 29)) && grep -q "^the ship" out.txt || fail "the prompt, 20 letters and a line's end"
cp out.txt first.txt
program generate out/export --prompt "the ship" --tokens 20
cmp out.txt first.txt || fail "greedy generation differs from itself"
program generate out/export --prompt "the ship" --tokens 20 --temperature 1 --seed 3
cp out.txt first.txt
program generate out/export --prompt "the ship" --tokens 20 --temperature 1 --seed 3
cmp out.txt first.txt || fail "sampling differs from itself"
program generate out/export --prompt "the ship" --tokens 20 --device cuda
expect_end 5 "--device"
program generate out/export --prompt "the ship" --device tpu
expect_end 2 "--device"
program generate out/export --prompt ""
expect_end 2 "--prompt"
program generate nowhere --prompt x
expect_end 4 "nowhere"
program generate out/export --prompt x --tokens 20
cp out.txt alone.txt
job 2 generate out/export --prompt x --tokens 20
expect_done
cmp -s alone.txt out.txt || fail "two ranks that share each layer write another text than one"

# An earlier run is not overwritten, and its files stay unchanged.
cp out/metrics.jsonl first.jsonl
job 4 train run.toml "${common[@]}"
expect_end 4 "run.overwrite = true" "out"
cmp out/metrics.jsonl first.jsonl || fail "the refused run wrote"
job 4 train run.toml "${common[@]}" --set checkpoint.resume=none
expect_end 4 "checkpoint.resume" "run.overwrite = true" "out"
cmp out/metrics.jsonl first.jsonl || fail "the refused run wrote"

job 4 train run.toml "${common[@]}" --set run.overwrite=true
expect_done
json_check '
first = [json.loads(line) for line in open(files[1])]
for a, b in zip(rows, first, strict=True):
    for key in ("loss", "grad_norm", "eval_loss", "lr"):
        assert a.get(key) == b.get(key), (key, a, b)
' out/metrics.jsonl first.jsonl

# Other samples from another start; fewer lines; another transport and lanes change nothing else.
job 2 train run.toml --set run.output=skipped --set data.skip_to=16 --set data.shuffle=false --set train.steps=3 \
  --set run.export=end --set data.document_end=46
expect_done
json_check 'assert rows[0]["eos_token_id"] == 46' skipped/export/config.json

# 8-bit products: trained, evaluated, stopped and resumed, exported, generated from.
fp8=(--set precision.compute=bf16 --set precision.fp8=rowwise --set run.output=fp8 --set checkpoint.at_end=true --set run.export=end
     --set "data.validation=[\"tokens.bin\"]" --set train.eval_every=4 --set train.eval_steps=1 --set lr.end_step=12)
job 2 train run.toml "${fp8[@]}" --set train.steps=6
expect_done
job 2 train run.toml "${fp8[@]}" --set train.steps=12
expect_done
grep -q "step     bf16 compute with rowwise fp8 products" out.txt || fail "the banner of a run with fp8 products"
json_check '
losses = [r["loss"] for r in rows if "loss" in r]
assert len(losses) == 12 and losses[-1] < losses[0] - 0.7, losses
' fp8/metrics.jsonl
program generate fp8/export --prompt "the ship" --tokens 20
expect_done
job 2 train run.toml "${fp8[@]}" --set precision.fp8=tensorwise --set run.output=tensorwise --set train.steps=1
expect_done
grep -q "precision.fp8 = tensorwise: scales depend on how ranks" err.txt out.txt || fail "no warning of tensorwise"
job 2 train run.toml --set run.output=whole --set data.shuffle=false --set train.steps=4 --set optimizer.lr=0
expect_done
job 2 train run.toml --set run.output=lanes --set data.skip_to=16 --set data.shuffle=false --set train.steps=3 \
  --set comm.lane_threads=true --set comm.backend=mpi --set metrics.every=2
expect_done
json_check '
whole, lanes = [[json.loads(line) for line in open(f)] for f in files[1:]]
assert rows[0]["loss"] == whole[1]["loss"], "step 1 from sample 16 is step 2 from sample 0, of a model that learns nothing"
assert [r["step"] for r in lanes] == [2, 3], "every second step, and the last"
assert [r["loss"] for r in lanes] == [r["loss"] for r in rows[1:]]
' skipped/metrics.jsonl whole/metrics.jsonl lanes/metrics.jsonl
