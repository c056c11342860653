# SPDX-License-Identifier: Apache-2.0
"""A mixture of experts on one GPU: Qwen3-MoE in small against the CPU, and its speed at a size that fills the GPU."""
import statistics
import time

from gpu_runs import agree, record
from gpu_trace import kernels_of


def experts(count, per_token, size):
    """A run file's settings of a mixture."""
    return {"model.architecture": "qwen3_moe", "model.experts": count, "model.experts_per_token": per_token, "model.expert_size": size}


def mixture(arguments, work, make_runs, memory_watch):
    """True when the GPU agrees with the CPU, expert ranks with one rank, and the large one trains."""
    whole = parity_of_experts(arguments, make_runs(arguments, work, "small", 4 if arguments.rehearsal else 20, 8))
    return speed_of_experts(arguments, make_runs(arguments, work, "mixture", arguments.steps, 2), memory_watch) and whole


def parity_of_experts(arguments, runs):
    """Whether all cases agree."""
    fp32 = experts(16, 4, 64) | {"precision.compute": "fp32", "loss.balance_loss": 1e-2, "loss.router_z_loss": 1e-3}
    bf16, cpu, by_mpi = fp32 | {"precision.compute": "bf16"}, {"device.type": "cpu"}, {"comm.backend": "mpi", "mesh.expert": 2}
    cases = {
        "fp32: experts, GPU against CPU": (fp32, 1, fp32 | cpu, 1e-4),
        "bf16: experts, GPU against CPU": (bf16, 1, bf16 | cpu, 2e-2),
        "fp32: two expert ranks on one GPU by MPI against one": (fp32 | by_mpi, 2, fp32, 1e-5),
    }
    whole = True
    for name, (ours, ranks, theirs, allowed) in cases.items():
        whole = agree(arguments, "mixture", name, runs.trireme, (ours, ranks), (theirs,), allowed) and whole
    return whole


def speed_of_experts(arguments, runs, memory_watch):
    """Whether it ran. What a token uses counts for MFU."""
    settings = experts(8, 2, 64) if arguments.rehearsal else experts(128, 8, 768)
    settings |= {"memory.recompute": "selective", "loss.balance_loss": 1e-3}
    began = time.monotonic()
    try:
        planned = runs.planned_gib(settings)
        with memory_watch() as memory:
            rows = runs.trireme(settings)
        trace = runs.work / "trace.json"
        runs.trireme(settings | {"metrics.trace_steps": [5, 6, 7], "train.steps": 8}, trace=trace)
    except RuntimeError as error:
        record(arguments, "mixture", name="Trireme", error=str(error))
        print(f"a mixture at full size did not run: {error}", flush=True)
        return False
    rate = runs.tokens_per_second(rows)
    mfu = statistics.median(row["mfu"] for row in rows) if rows[-1].get("mfu") else None
    losses = [row["loss"] if row["loss"] is not None else float("nan") for row in rows]
    record(arguments, "mixture", name="Trireme", tokens_per_second=rate, mfu=mfu, gib=memory.gib, planned_gib=planned, losses=losses)
    print(f"128 experts of 768, 8 of them a token, bf16, 2 x {runs.shape['seq_len']} tokens: {rate:.0f} tokens/s, "
          f"MFU {f'{mfu:.1%}' if mfu else '-'}, {memory.gib:.1f} GiB (planned {planned:.1f}), loss {losses[0]:.3f} to {losses[-1]:.3f}, "
          f"{time.monotonic() - began:.0f} s", flush=True)
    spans, kernels, groups = kernels_of(trace)
    record(arguments, "mixture", spans=spans, kernels=kernels, groups=groups)
    return losses[-1] < losses[0]
