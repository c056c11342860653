# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# The program, linked with the simulated GPU: what a user sees of one. Environment: as tests/cli.
# Fault, hangs: ranks share a GPU under `comm.backend = "nccl"` -> exit code 5 unless each has an `NCCL_HOSTID`, then
#   a warning
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

# Graphs, evaluations and a trace in one run, on the GPU that `auto` finds.
program train run.toml --set run.output=graphs --set device.cuda_graphs=true --set metrics.trace_steps=[5] --set batch.micro=4 \
  --set data.validation=tokens.bin --set train.eval_every=2 --set train.eval_steps=1
expect_done
grep -q "^device   a simulated GPU with 8 GiB" out.txt || fail "no line for the GPU"
program train run.toml --set run.output=single --set batch.micro=4 --set data.validation=tokens.bin --set train.eval_every=2 --set train.eval_steps=1
expect_done
program train run.toml --set run.output=host --set device.type=cpu --set batch.micro=4 --set data.validation=tokens.bin --set train.eval_every=2 --set train.eval_steps=1
expect_done
json_check '
values = [[row[key] for row in map(json.loads, open(file)) for key in ("loss", "grad_norm", "eval_loss") if row.get(key) is not None] for file in files]
assert len(values[0]) == 15, values
assert values[0] == values[1], ("graphs", values[0], "op by op", values[1])
assert all(abs(a - b) <= 1e-5 * abs(b) for a, b in zip(values[1], values[2])), ("GPU", values[1], "CPU", values[2])
used = [row["memory_peak_bytes"]["device"]["activations"] for row in rows if "loss" in row]
assert used[-1] >= used[0] > 0, used' graphs/metrics.jsonl single/metrics.jsonl host/metrics.jsonl
json_check '
spans = [e["name"] for e in rows[0]["traceEvents"] if e["ph"] == "X"]
joined = [name for name in spans if " ... " in name]
assert joined and len(spans) > len(joined), spans' graphs/trace-rank0.json

# The budget is a bound: exit code 5, what held memory and what would need less.
program train run.toml --set memory.budget=1MiB --set batch.micro=4
expect_end 5 "out of memory in \`"
grep -qE "^activations +device" err.txt || fail "no table by category"
rm -rf out

# Pinned host memory for offload is checked before anything is allocated.
program train run.toml --set memory.offload=parameters --set model.hidden_size=65536 --set model.intermediate_size=262144 \
  --set model.layers=64 --set model.heads=512 --set model.kv_heads=512
expect_end 5 "page-locked host memory"

# Ranks that share the GPU: over MPI by themselves, not over NCCL.
job 2 train run.toml --set train.steps=2
expect_done
grep -q "ranks share GPUs: tensors are staged through host memory" err.txt || fail "no word about MPI"
rm -rf out
job 2 train run.toml --set comm.backend=nccl
expect_end 5 "requires one GPU per rank" "NCCL_HOSTID"
# With distinct host ids also over NCCL, whose collectives are pending after their launch; equal ids are refused.
# shellcheck disable=SC2086  # several options in one variable
shared() { launch $MPIEXEC $MPIEXEC_FLAGS -n 2 bash "$TRIREME_SOURCE/tests/support/one_gpu_rank.sh" "$TRIREME" "$@"; }
TRIREME_SIMULATED_GPU=concurrent shared train run.toml --set comm.backend=nccl
expect_done
grep -q "ranks share GPUs and use NCCL" err.txt || fail "no warning of ranks that share a GPU"
grep -q "^mesh .*nccl" out.txt || fail "ranks with host ids, and no NCCL"
cp out/metrics.jsonl shared.jsonl
rm -rf out
NCCL_HOSTID=same shared train run.toml --set comm.backend=nccl
expect_end 5 "requires one GPU per rank" "NCCL_HOSTID"
ONE_GPU_WITHOUT_ID=1 shared train run.toml --set comm.backend=nccl
expect_end 5 "requires one GPU per rank" "NCCL_HOSTID"
shared train run.toml --set train.steps=2
expect_done
grep -q "tensors are staged through host memory" err.txt || fail "automatic choice took NCCL on a shared GPU"
rm -rf out
TRIREME_SIMULATED_GPUS=2 job 2 train run.toml
expect_done
grep -q "^mesh .*nccl" out.txt || fail "two GPUs, and no NCCL"
grep -q "1 shard group of 2 ranks (ranks 0-1): inside one NVLink domain" err.txt || fail "no line for the shard group's NVLink"
json_check '
values = [[json.loads(line)["loss"] for line in open(file) if "\"loss\"" in line] for file in files]
assert all(abs(a - b) <= 1e-5 * abs(b) for other in values[1:] for a, b in zip(values[0], other, strict=True)), values' out/metrics.jsonl \
  single/metrics.jsonl shared.jsonl
rm -rf out
program train run.toml --set comm.backend=nccl --set memory.offload=parameters
expect_end 2 "gradients in host memory" "comm.backend = \"auto\""

# A run resumes from its checkpoint, bit for bit.
program train run.toml --set run.output=saved --set batch.micro=4 --set checkpoint.every=3 --set checkpoint.keep=2
expect_done
rm -r saved/checkpoints/step-00000006
program train run.toml --set run.output=saved --set batch.micro=4 --set checkpoint.every=3 --set checkpoint.keep=2
expect_done
grep -q "resuming from saved/checkpoints/step-00000003" err.txt || fail "it did not go on"
json_check '
values = [[row[key] for row in map(json.loads, open(file)) for key in ("loss", "grad_norm") if key in row] for file in files]
assert values[0] == values[1], values' saved/metrics.jsonl single/metrics.jsonl

# The same text from both.
program train run.toml --set run.export=end
expect_done
program generate out/export --prompt "the ship" --tokens 12 --device cuda
expect_done
cp out.txt there.txt
program generate out/export --prompt "the ship" --tokens 12 --device cpu
expect_done
cmp out.txt there.txt || fail "another text on the GPU"

# A mixture of experts with updated correction biases: the same results as on the host; the same bits when resumed from its
# checkpoint; the same text; and with its experts divided over two GPUs.
mixture=(--set model.architecture=dots1 --set model.experts=6 --set model.experts_per_token=2 --set model.expert_size=24 --set model.shared_size=24
  --set loss.balance_bias_rate=0.01 --set loss.balance_loss=0.01 --set batch.micro=4)
program train run.toml "${mixture[@]}" --set run.output=experts --set checkpoint.every=3 --set checkpoint.keep=2 --set run.export=end
expect_done
cp experts/metrics.jsonl experts.jsonl
program train run.toml "${mixture[@]}" --set run.output=experts-host --set device.type=cpu
expect_done
TRIREME_SIMULATED_GPUS=2 job 2 train run.toml "${mixture[@]}" --set run.output=experts-two --set mesh.expert=2
expect_done
program generate experts/export --prompt "the ship" --tokens 12 --device cuda
expect_done
cp out.txt there.txt
program generate experts/export --prompt "the ship" --tokens 12 --device cpu
expect_done
cmp out.txt there.txt || fail "another text from experts on the GPU"
rm -r experts/checkpoints/step-00000006
program train run.toml "${mixture[@]}" --set run.output=experts --set checkpoint.every=3 --set checkpoint.keep=2
expect_done
json_check '
values = [{row["step"]: row for row in map(json.loads, open(file)) if "loss" in row} for file in files]
there, again, here, two = values
assert all(there[s]["loss"] == again[s]["loss"] for s in (4, 5, 6)), ("restart", there, again)
for other in (here, two):
    for key, allowed in (("loss", 1e-5), ("balance_loss", 1e-4), ("grad_norm", 1e-4)):
        assert all(abs(there[s][key] - other[s][key]) <= allowed * abs(other[s][key]) for s in other), (key, there, other)
assert there[1]["expert_tokens"] == here[1]["expert_tokens"] == two[1]["expert_tokens"]' experts.jsonl experts/metrics.jsonl experts-host/metrics.jsonl experts-two/metrics.jsonl
