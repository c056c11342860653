# SPDX-License-Identifier: Apache-2.0
#
# Training with experts divided over ranks: the losses of a run without that, its checkpoints and exports, unsupported settings,
# invalid counts, and ranks that die, stop or withhold an exchange, also combined with tensor and context ranks.
# timeout: 400
# Fault, hangs: experts: a rank killed or stopped between dispatch and combine -> exit code 7 with layer, microbatch,
#   step, rank
# Fault, hangs: experts: impossible counts -> the run ends with rank and expert
# Fault, plans: `mesh.sequence_parallel = false` with tensor ranks and the experts of `model.from` -> exit code 2 in
#   `plan` and `train`
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

mixture=(--set model.architecture=qwen3_moe --set model.experts=6 --set model.experts_per_token=2 --set model.expert_size=24)
divided=("${mixture[@]}" --set mesh.expert=2)
job 2 train run.toml "${mixture[@]}" --set data.validation=tokens.bin --set train.eval_every=3 --set train.eval_steps=2
expect_done
mv out without

program plan run.toml "${divided[@]}" --ranks 4 --show traffic
expect_done
grep -q '^expert all_to_all ' out.txt || fail 'plan counts no exchange between expert ranks'
grep -q '^expert_shard all_gather ' out.txt || fail 'plan counts no gather of experts'
program plan run.toml "${divided[@]}" --ranks 4 --show memory
expect_done
grep -q '^planned: 1.25 times balanced ' out.txt || fail 'plan does not show activations by load of the experts'

# A checkpoint of four ranks with experts divided by three and by two, and of one without; what it exports.
job 2 train run.toml "${divided[@]}" --set data.validation=tokens.bin --set train.eval_every=3 --set train.eval_steps=2 \
  --set run.export=end --set checkpoint.at_end=true
expect_done
grep -q 'shard x tensor), expert 2' out.txt || fail 'the banner does not show the expert ranks'
grep -q 'step [0-9]*: the experts of b[01] on dp rank [01] (.*) got [0-9]* rows in a microbatch' err.txt || fail 'no warning of more rows than planned'
(($(grep -c 'rows in a microbatch' err.txt) <= 2)) || fail 'a rank warns of more rows than planned more than once'
json_check '
others = [json.loads(line) for line in open(files[1])]
def near(a, b, tolerance): return abs(a - b) <= tolerance * abs(b)
assert len(rows) == len(others)
for row, other in zip(rows, others):
    for key, tolerance in ("loss", 1e-5), ("eval_loss", 1e-5), ("grad_norm", 1e-4):
        a, b = row.get(key), other.get(key)
        assert (a is None) == (b is None) and (a is None or near(a, b, tolerance)), (key, row, other)
assert rows[0]["expert_tokens"] == others[0]["expert_tokens"], "loads are those of any mesh"
assert rows[0]["comm_calls"]["expert"]["all_to_all"] == 2 * 4 * 5, rows[0]["comm_calls"]
' out/metrics.jsonl without/metrics.jsonl
saved=out/checkpoints/step-00000006
program verify $saved
expect_done
program export $saved -o exported --dtype fp32
expect_done
cmp exported/model.safetensors out/export/model.safetensors || fail "the run's export is not its checkpoint's"
program generate $saved --prompt "the ship" --tokens 8
expect_done
job 2 evaluate $saved --data tokens.bin
expect_done
job 3 train run.toml "${mixture[@]}" --set mesh.expert=3 --set batch.global=48 --set checkpoint.at_end=true --set train.steps=8
expect_done
grep -q "resuming from $saved: step 6" err.txt || fail 'the run did not resume on another mesh'
job 2 train run.toml "${mixture[@]}" --set train.steps=9
expect_done
json_check 'assert [r["step"] for r in rows if "loss" in r] == list(range(1, 10))' out/metrics.jsonl
mv exported weights
rm -r out

# Settings that do not fit experts.
refused() {
  job 2 train run.toml "${divided[@]}" "${@:2}"
  expect_end 2 "$1"
}
refused 'mesh.sequence_parallel: false with experts and mesh.tensor > 1' --set mesh.tensor=2 --set mesh.sequence_parallel=false
refused 'sync.reshard_after_forward: not available with mesh.expert > 1' --set mesh.tensor=2 --set sync.reshard_after_forward=2
refused 'how many tokens each expert gets differs per step; set cuda_graphs = false' --set device.type=cuda --set device.cuda_graphs=true
refused 'mesh.expert: 2 does not divide model.experts = 5' --set model.experts=5
refused 'mesh.expert: 2 does not divide the 1 ranks of mesh.shard 1' --set mesh.replicate=2
# The experts of model.from: plan and train refuse alike.
sed -e '/^\[model\]/,/^\[data\]/{/^\[/!d}' -e 's/^\[model\]$/&\nfrom = "weights"/' run.toml >from.toml
for command in "program plan from.toml --ranks 2" "job 2 train from.toml"; do
  $command --set mesh.tensor=2 --set mesh.sequence_parallel=false
  expect_end 2 'mesh.sequence_parallel: false with mesh.tensor > 1 sends every token to its experts once for each tensor rank'
done
program plan from.toml --ranks 2 --set mesh.tensor=2
expect_done
job 2 train run.toml --set mesh.expert=2 --set optimizer.beta2=2
expect_end 2 'mesh.expert: 2 expert ranks, but' 'has no experts; set mesh.expert = 1' 'optimizer.beta2'
expect_no_output

# Counts that cannot be are refused before anything is sized by them.
export TRIREME_FAULT=experts.counts:nan:0:2
job 2 train run.toml "${divided[@]}"
((status != 0)) || fail 'impossible counts were believed'
grep -q 'expert rank 0 has -7 rows for expert 0 of expert rank 1' err.txt || fail 'impossible counts are not named'
rm -r out

# A rank killed between dispatch and combine ends the job; one that stops there is named by the others.
export TRIREME_FAULT=experts.combine:kill:1:2
for lanes in false true; do
  job 2 train run.toml "${divided[@]}" --set comm.lane_threads=$lanes
  ((status != 0)) || fail "a killed rank: exit code $status"
  rm -r out
done
export TRIREME_FAULT=experts.combine:stop:1:2
for lanes in false true; do beside lanes-$lanes 2 train run.toml "${divided[@]}" --set comm.timeout_seconds=8 --set comm.lane_threads=$lanes; done
ended lanes-false
expect_end 7 'Hang: ' ' on expert/expert' 'combine b0.experts m0' ', step 3"' 'still waits for rank'
# With threads another lane may be the first to wait too long.
ended lanes-true
expect_end 7 'Hang: ' 'still waits for rank'
rm -r out

# The same where ranks divide experts, sequences and layers; one that withholds its loads is waited for, too.
axes=("${mixture[@]}" --set model.experts=8 --set mesh.tensor=2 --set mesh.context=2 --set mesh.expert=4 --set loss.balance_loss=0.01
  --set comm.timeout_seconds=8)
export TRIREME_FAULT=experts.overflow:nan:3:2
job 4 train run.toml "${axes[@]}"
((status != 0)) || fail 'a count that overflows was believed'
grep -q 'b0: expert rank 3 has 2147483647 rows for expert 0 of expert rank 0, but 16 tokens' err.txt || fail 'a count that overflows is not named'
rm -r out
export TRIREME_FAULT=experts.combine:kill:2:2
job 4 train run.toml "${axes[@]}"
((status != 0)) || fail "a killed rank: exit code $status"
expect_soon
rm -r out
# A rank that withholds its rows continues with its next op: the others time out, or find its counts impossible.
TRIREME_FAULT=experts.combine:stop:3:2 beside stopped 4 train run.toml "${axes[@]}" --set comm.lane_threads=false
TRIREME_FAULT=experts.dispatch:nan:3:2 beside withheld 4 train run.toml "${axes[@]}" --set comm.lane_threads=true
ended stopped
expect_end 7 'Hang: ' ' on expert/expert' 'combine b0.experts m0' ', step 3"' 'still waits for rank'
ended withheld
((status != 0)) || fail 'rows that are withheld were not missed'
expect_soon
grep -qE 'Hang: .*, step 3" still waits for rank|has -?[0-9]+ rows for expert' err.txt || fail 'rows that are withheld are not named'
rm -r out
export TRIREME_FAULT=experts.loads:nan:1:2
job 4 train run.toml "${axes[@]}" --set comm.lane_threads=false
expect_end 7 'Hang: ' ', step 3"' 'still waits for rank'
# Rank 1 continues and waits in another collective: the rank whose timeout expires first reports the hang.
grep -qE 'on sequence/expert for "sum_loads b1.route m0, .*waits for rank 1|\[rank 1 .*Hang: .*waits for rank' err.txt ||
  fail 'loads that are withheld are not named'
rm -r out
