# SPDX-License-Identifier: Apache-2.0
#
# Training with a pipeline: the losses of a run without one, its checkpoints and exports, what is refused, and ranks that
# die, stop or disagree.
# timeout: 400
# Fault, hangs: pipeline: a withheld message, a stopped or killed rank -> exit code 7 with edge, microbatch, step,
#   rank
# Fault, hangs: pipeline: another list on one rank -> exit code 2 before the first step
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

pipeline=(--set model.layers=4 --set mesh.pipeline=2)
job 2 train run.toml --set model.layers=4 --set data.validation=tokens.bin --set train.eval_every=3 --set train.eval_steps=2
expect_done
mv out without

# same RANKS SETTINGS: the losses, evaluations and norms of the run without a pipeline.
same() {
  local ranks=$1
  shift
  job "$ranks" train run.toml "${pipeline[@]}" --set data.validation=tokens.bin --set train.eval_every=3 \
    --set train.eval_steps=2 "$@"
  expect_done
  json_check '
others = [json.loads(line) for line in open(files[1])]
def near(a, b, tolerance): return abs(a - b) <= tolerance * abs(b)
assert len(rows) == len(others)
for row, other in zip(rows, others):
    assert row["step"] == other["step"]
    for key, tolerance in ("loss", 1e-5), ("eval_loss", 1e-5), ("grad_norm", 1e-4):
        a, b = row.get(key), other.get(key)
        assert (a is None) == (b is None) and (a is None or near(a, b, tolerance)), (key, row, other)
steps = [r for r in rows if "loss" in r]
assert all(r["comm_bytes"]["pipeline"]["send"] > 0 for r in steps), steps[0]["comm_bytes"]
assert len({r["comm_bytes"]["pipeline"]["send"] for r in steps}) == 1, "each step the same"
for r in steps:
    assert 0 <= r["pipeline_bubble"] < 1 and 0 < r["pipeline_wait_seconds"] < r["step_seconds"], r
assert not any(key.startswith("pipeline") for row in others for key in row)
' out/metrics.jsonl without/metrics.jsonl
}
same 2
program plan --compare out --machine local
expect_done
grep -q "^2 ranks (pipeline 2 x 1 x 1 x 1)" out.txt || fail "plan --compare does not show the pipeline"
[[ $(grep -cE "^(pipeline|world|shard) .* equal$" out.txt) -ge 1 ]] || fail "plan --compare of a pipeline: no bytes"
! grep -E "^(pipeline|shard|replicate) .*%$" out.txt || fail "plan --compare: bytes of a pipeline rank are not those predicted"
grep -qE "^step, median of .*%$" out.txt || fail "plan --compare of a pipeline: no step time"
rm -r out
same 4 --set pipeline.schedule=interleaved --set metrics.trace_steps=[2,3] --set comm.lane_threads=true --set batch.micro=1
grep -q "pipeline x replicate x shard x tensor" out.txt || fail "the banner does not show the mesh"
# Laid together, the traces have an arrow from every send to its receive, within both of their spans.
json_check '
import collections
events = [e for path in files[1:] for e in json.load(open(path))["traceEvents"]]
spans = collections.defaultdict(list)
for e in events:
    if e["ph"] == "X": spans[e["pid"], e["tid"]].append(e)
def around(e):
    (span,) = [s for s in spans[e["pid"], e["tid"]] if s["ts"] <= e["ts"] < s["ts"] + s["dur"]]
    return span
sent = {(e["name"], e["id"]): e for e in events if e["ph"] == "s"}
received = {(e["name"], e["id"]): e for e in events if e["ph"] == "f"}
assert len(sent) == len([e for e in events if e["ph"] == "s"]) > 40, len(sent)
assert sent.keys() == received.keys(), sent.keys() ^ received.keys()
for key, e in sent.items():
    a, b = around(e), around(received[key])
    assert a["name"].startswith("send " + key[0]) and b["name"].startswith("receive " + key[0]), (a, b)
    assert a["args"]["step"] == b["args"]["step"] and a["pid"] != b["pid"], (a, b)
    assert a["ts"] < b["ts"] + b["dur"], (a, b)
' out/metrics.jsonl out/trace-rank*.json
rm -r out
same 2 --set pipeline.schedule=zbv
rm -r out

# Settings that do not fit a pipeline.
refused() {
  job 2 train run.toml "${pipeline[@]}" "${@:2}"
  expect_end 2 "$1"
}
refused "dualpipev requires at least 2 x mesh.pipeline = 4 microbatches" --set pipeline.schedule=dualpipev --set batch.micro=16
refused "a pipeline of 2 chunks for 1 layers" --set model.layers=1
refused "requires microbatches in groups of mesh.pipeline = 2" --set pipeline.schedule=interleaved --set batch.micro=16
expect_no_output

# A checkpoint of four pipeline chunks, resumed without a pipeline; what it generates, evaluates to and exports.
job 4 train run.toml "${pipeline[@]}" --set model.tie_embeddings=true --set pipeline.schedule=interleaved \
  --set mesh.tensor=2 --set run.export=end --set checkpoint.at_end=true
expect_done
saved=out/checkpoints/step-00000006
program verify $saved
expect_done
program inspect $saved
expect_done
grep -q "saved on 2x1x1x2 (pipeline x replicate x shard x tensor)" out.txt || fail "inspect does not show the mesh"
program export $saved -o exported --dtype fp32
expect_done
cmp exported/model.safetensors out/export/model.safetensors || fail "the run's export is not its checkpoint's"
for from in $saved exported; do
  program generate "$from" --prompt "the ship" --tokens 8
  expect_done
  mv out.txt "$(basename "$from").generated"
done
cmp step-00000006.generated exported.generated || fail "the checkpoint generates other text than its export"
job 2 evaluate $saved --data tokens.bin
expect_done
job 2 train run.toml --set model.layers=4 --set model.tie_embeddings=true --set checkpoint.at_end=true --set train.steps=9
expect_done
grep -q "resuming from $saved: step 6" err.txt || fail "the run did not resume"
job 2 train run.toml "${pipeline[@]}" --set model.tie_embeddings=true --set train.steps=11
expect_done
json_check 'assert [r["step"] for r in rows] == list(range(1, 12))' out/metrics.jsonl
rm -r out
job 2 train run.toml "${pipeline[@]}" --set model.tie_embeddings=true --set model.from=exported --set train.steps=1
expect_done
rm -r out

# Another list on one rank is seen before anything runs.
export TRIREME_FAULT=start.list:nan:1
job 2 train run.toml "${pipeline[@]}"
expect_end 2 "do not agree on the schedule: rank 1 differs"
rm -rf out

# A rank killed between receive and take.
export TRIREME_FAULT=pipeline.take:kill:1:2
for lanes in false true; do
  job 2 train run.toml "${pipeline[@]}" --set comm.lane_threads=$lanes
  ((status != 0)) || fail "a killed rank: exit code $status"
  grep -qi 'signal 9' err.txt || fail 'the launcher does not report the killed rank'
  rm -r out
done

# A message withheld, and a rank that stops: the others name what they wait for, and from whom.
for fault in pipeline.send:nan:0:2 pipeline.take:stop:1:2; do
  export TRIREME_FAULT=$fault
  for lanes in false true; do
    beside lanes-$lanes 2 train run.toml "${pipeline[@]}" --set comm.timeout_seconds=8 --set comm.lane_threads=$lanes
  done
  for lanes in false true; do
    ended lanes-$lanes
    expect_end 7 "Hang: " " on pipeline/" " e0 m" ', step 3"' "still waits for rank"
  done
done
rm -r out

# A signal at one pipeline rank saves on all of them and requests a requeue; the restart continues.
export TRIREME_FAULT=step.begin:usr1:1:2
job 2 train run.toml "${pipeline[@]}" --set pipeline.schedule=zbv --set checkpoint.at_end=true
((status == 75)) || fail "a signal at one pipeline rank: exit code $status, expected 75"
unset TRIREME_FAULT
job 2 train run.toml "${pipeline[@]}" --set pipeline.schedule=zbv --set checkpoint.at_end=true
expect_done
json_check 'assert [r["step"] for r in rows] == list(range(1, 7))' out/metrics.jsonl
rm -r out

# Not a number on one pipeline rank: the step is skipped on all of them.
export TRIREME_FAULT=grad.reduce:nan:1:3
job 2 train run.toml "${pipeline[@]}"
expect_done
json_check 'assert [r["skipped_steps"] for r in rows] == [0, 0, 0, 1, 1, 1]' out/metrics.jsonl
rm -r out

# sync.policy = "auto" is chosen for a pipeline, by plan and train alike; a run changes between pipeline, dp and auto.
auto=(--set sync.policy=auto --set memory.budget=1GiB --set checkpoint.at_end=true)
unset TRIREME_FAULT
program plan run.toml --ranks 2 "${pipeline[@]}" "${auto[@]}"
expect_done
grep -q 'taken: the fastest that fits' out.txt || fail 'plan chooses no policy'
job 2 train run.toml --set model.layers=4 "${auto[@]}" --set train.steps=2
expect_done
job 2 train run.toml "${pipeline[@]}" "${auto[@]}" --set train.steps=4
expect_done
grep -q 'sync.policy = auto under memory.budget' err.txt || fail 'train chooses no policy'
job 2 train run.toml "${pipeline[@]}" --set checkpoint.at_end=true --set train.steps=5
expect_done
job 2 train run.toml "${pipeline[@]}" "${auto[@]}"
expect_done
json_check 'assert [r["step"] for r in rows] == list(range(1, 7))' out/metrics.jsonl
job 2 train run.toml "${pipeline[@]}" "${auto[@]}" --set memory.budget=10KiB --set run.output=small
expect_end 2 'sync.policy = "auto": no policy fits memory.budget'
