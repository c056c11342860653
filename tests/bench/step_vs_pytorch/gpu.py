#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trireme beside PyTorch FSDP2, eager and torch.compile, on one GPU, in one run. Its Python must have PyTorch (tests/gpu.sh
finds one).

    gpu.py speed --trireme PROGRAM --model 1b     tokens/s, MFU, peak memory and start-up: what decides the ratio first; --part rest: the others
    gpu.py trace --trireme PROGRAM --model 1b     three steps traced: the longest kernels of a step
    gpu.py curve --trireme PROGRAM                bf16 losses of a 160M model over 2,000 steps: mean gap of the last 500
    gpu.py parity --trireme PROGRAM               one GPU against the CPU, fp32 and bf16; four ranks on one GPU against one
    gpu.py mixture --trireme PROGRAM              experts: one GPU against the CPU, expert ranks against one; tokens/s and memory
    gpu.py nccl --trireme PROGRAM --part first    ranks that share the GPU over NCCL against MPI; killed and stopped ranks; --part rest: more runs
    gpu.py clocks --trireme PROGRAM --model 1b    clocks and power of the GPU during steps of one and of four microbatches
    gpu.py big --trireme PROGRAM                  6 billion parameters below 40 GiB, in host memory; what ran beside what

With --measured FILE each figure is also appended there as a line of JSON, for tests/gpu_judge.py, which knows the goals.
MFU counts attention in full against 989 TFLOP/s (dense bf16 of an H100 or H200), by Trireme's rule for both programs. Peak
memory is what nvidia-smi sees, caches included. Start-up goes from the program's start to the end of its first step. What `trireme plan`
predicts not to fit the GPU is skipped, with a word.

--rehearsal: tiny shapes, few steps, the peer on the CPU and not compiled, for a machine without a GPU
(tests/support/simulated_gpu/rehearsal_test.sh)."""
import argparse
import concurrent.futures
import json
import pathlib
import statistics
import sys
import tempfile
import time

from gpu_clocks import clocks
from gpu_mixture import mixture
from gpu_nccl import nccl
from gpu_runs import PEAK_FLOPS, PeakMemory, Runs, agree, capability, nvidia_smi, record
from gpu_trace import kernels_of

VARIANTS = {  # in the order in which they run: a time limit takes the least needed
    "Trireme, recompute selective": {"memory.recompute": "selective"},
    "PyTorch compiled": {"compile": True},
    "Trireme, recompute selective, graphs": {"memory.recompute": "selective", "device.cuda_graphs": True},
    "Trireme, recompute none": {"memory.recompute": "none"},
    "Trireme, recompute block": {"memory.recompute": "block"},
    "PyTorch compiled, recompute block": {"compile": True, "recompute": "block"},
    "Trireme, offload optimizer": {"memory.recompute": "selective", "memory.offload": "optimizer"},
    "Trireme, offload parameters": {"memory.recompute": "selective", "memory.offload": "parameters"},
    "Trireme, offload activations": {"memory.recompute": "none", "memory.activation_offload": True},
    "PyTorch eager": {},
    "Trireme, fp8 rowwise": {"memory.recompute": "selective", "precision.fp8": "rowwise"},
    "Trireme, fixed segments": {"memory.recompute": "selective", "environment": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"}},
}
PARTS = {"all": tuple(VARIANTS), "first": tuple(VARIANTS)[:3], "rest": tuple(VARIANTS)[3:]}
BIG = {"memory.offload": "parameters", "memory.recompute": "block"}
NOT_JUDGED = ("PyTorch eager",  # 1B at 4 x 4096 needs more than 78 GiB of it
              "Trireme, fp8 rowwise",  # other products than the peer's; GPUs before 8.9 refuse it
              "Trireme, fixed segments")  # libtorch's allocator by its own default, which leaves gaps
OUTSIDE_GIB = 2.5  # memory of a process on a GPU outside of its allocator: CUDA context, NCCL, workspaces of libraries


def speed(arguments, work):
    """A table of ours and the peers; False when one that is judged did not run."""
    step = f"{'variants' if arguments.part == 'rest' else 'speed'}-{arguments.model}"
    gpu_mib = nvidia_smi("memory.total")
    runs = Runs(arguments, work, arguments.model, arguments.steps, arguments.micro)
    print(f"Llama {arguments.model}, bf16, {arguments.micro} x {runs.shape['seq_len']} tokens a step, {arguments.steps} steps")
    print(f"{'':36s} {'tokens/s':>9s} {'MFU':>6s} {'peak GiB':>9s} {'start s':>8s} {'run s':>6s}", flush=True)
    whole, flops_per_token = True, None
    names = list(arguments.variants or PARTS[arguments.part])
    if arguments.rehearsal and arguments.part == "rest":  # not eager, which is what the compiled one is there; of a second model the pair only
        names = [name for name in names if name != "PyTorch eager" and (arguments.model == "1b" or "recompute block" in name)]
    for name in names:
        settings, ours, began = VARIANTS[name], name.startswith("Trireme"), time.monotonic()
        try:
            planned = runs.planned_gib(settings) if ours else None
            if planned and gpu_mib and planned + OUTSIDE_GIB > gpu_mib / 1024:
                skipped = f"plan: {planned:.1f} GiB and {OUTSIDE_GIB} outside, of {gpu_mib / 1024:.1f}"
                print(f"{name:36s} skipped ({skipped})", flush=True)
                record(arguments, step, name=name, skipped=skipped)
                if arguments.part == "first" and name == names[0]:  # then this is what decides
                    names += ["Trireme, recompute block", "PyTorch compiled, recompute block"]
                continue
            with PeakMemory() as memory:
                rows = (runs.trireme if ours else runs.peer)(settings)
        except RuntimeError as error:
            print(f"{name:36s} did not run: {error}", flush=True)
            record(arguments, step, name=name, error=str(error))
            whole = whole and name in NOT_JUDGED
            continue
        rate = runs.tokens_per_second(rows)
        if rows[-1].get("mfu"):
            flops_per_token = statistics.median(row["mfu"] * PEAK_FLOPS / row["tokens_per_second"] for row in rows)
        mfu = rate * flops_per_token / PEAK_FLOPS if flops_per_token else None
        start = rows[0]["start_seconds"]
        record(arguments, step, name=name, tokens_per_second=rate, mfu=mfu, gib=memory.gib, planned_gib=planned, start_seconds=start)
        print(f"{name:36s} {rate:9.0f} {f'{mfu:6.1%}' if mfu else '     -'} {memory.gib:9.1f} {start:8.1f} {time.monotonic() - began:6.0f}", flush=True)
    return whole


def curve(arguments, work):
    """The mean gap of the last quarter; true when it is a number. Also the effect of rounding alone: ours with another order of sums."""
    runs = Runs(arguments, work, "160m", arguments.steps, 8, weights=True, std=0.02, zipf=True)
    warmup = max(1, arguments.steps // 20)
    settings = {"lr.warmup_steps": warmup}
    with concurrent.futures.ThreadPoolExecutor() as all_of_them:  # side by side: nothing is timed
        running = [all_of_them.submit(runs.trireme, settings), all_of_them.submit(runs.peer, {"warmup_steps": warmup}),
                   all_of_them.submit(runs.trireme, settings | {"run.deterministic": True})]
        ours, theirs, again = (one.result() for one in running)
    every = max(1, arguments.steps // 40)
    for a, b, c in list(zip(ours, theirs, again, strict=True))[::every]:
        print(f"step {a['step']:5d}: loss {a['loss']:.5f} {b['loss']:.5f} {c['loss']:.5f}")
    tail = arguments.steps // 4

    def gap(a, b):
        mean = statistics.mean(row["loss"] for row in b[-tail:])
        return abs(statistics.mean(row["loss"] for row in a[-tail:]) - mean) / mean

    single = statistics.mean(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(ours[-tail:], theirs[-tail:], strict=True))
    figures = {"gap": gap(ours, theirs), "gap_of_single_steps": single, "gap_of_sums": gap(ours, again)}
    record(arguments, "curve", steps=arguments.steps, tail=tail, **figures)
    print(f"mean gap of the last {tail} steps: {figures['gap']:.3%} (of single steps, without their signs: {single:.3%}; "
          f"of ours in another order of sums: {figures['gap_of_sums']:.3%})")
    return figures["gap"] == figures["gap"]


def parity(arguments, work):
    """True when the GPU agrees with the CPU and four ranks on it agree with one."""
    runs = Runs(arguments, work, "small", 4 if arguments.rehearsal else 20, 8, weights=True)
    fp32 = {"precision.compute": "fp32"}
    apart = fp32 | {"data.document_mask": True, "data.document_end": 7}
    # In one order of sums: products may be computed by other algorithms the next time, which were measured.
    one_order = {"run.deterministic": True}
    # Microbatches without an own gather or reduction among others, and evaluations between replays.
    accumulated = one_order | {"batch.micro": 2, "sync.policy": "deferred", "sync.reshard_after_forward": False,
                   "sync.reshard_after_backward": False, "train.eval_every": 5, "train.eval_steps": 1,
                   "data.validation": str(runs.tokens)}
    cases = {  # the most informative first
        "fp32: GPU against CPU": (fp32, 1, fp32 | {"device.type": "cpu"}, 1, 1e-4),
        "bf16: GPU against CPU": ({}, 1, {"device.type": "cpu"}, 1, 2e-2),
        "bf16: graphs against op by op": (accumulated | {"device.cuda_graphs": True}, 1, accumulated, 1, 1e-6),
        "fp32: four ranks on one GPU by MPI against one": (fp32 | {"comm.backend": "mpi"}, 4, fp32, 1, 1e-5),
        "fp32: recompute block against none": (fp32 | {"memory.recompute": "block"}, 1, fp32 | {"memory.recompute": "none"}, 1, 1e-6),
        "fp32: offload of parameters against none": (fp32 | {"memory.offload": "parameters"}, 1, fp32, 1, 1e-5),
        "fp32: documents kept apart, GPU against CPU": (apart, 1, apart | {"device.type": "cpu"}, 1, 1e-4),
        "bf16: graphs and offload against offload": (
            one_order | {"device.cuda_graphs": True, "memory.offload": "parameters"}, 1,
            one_order | {"memory.offload": "parameters"}, 1, 1e-6),
        "fp8 rowwise: GPU against CPU": (
            {"precision.fp8": "rowwise"}, 1, {"precision.fp8": "rowwise", "device.type": "cpu"}, 1, 2e-2),
        "fp32: two ranks by tensor, MPI, against one": (fp32 | {"comm.backend": "mpi", "mesh.tensor": 2}, 2, fp32, 1, 1e-5),
    }
    if arguments.rehearsal:
        cases = dict(list(cases.items())[:4]) | {name: case for name, case in cases.items() if "fp8" in name}
    elif capability() < 8.9:
        cases = {name: case for name, case in cases.items() if "fp8" not in name}
    whole, known = True, {}

    def rows_of(settings, ranks):
        key = json.dumps([settings, ranks])
        if key not in known:
            known[key] = runs.trireme(settings, ranks)
        return known[key]

    for name, (ours, our_ranks, theirs, their_ranks, tolerance) in cases.items():
        if "tensor" in name:
            ours = ours | {"batch.micro": 8}
        whole = agree(arguments, "parity", name, rows_of, (ours, our_ranks), (theirs, their_ranks), tolerance) and whole
    return parity_of_generate(arguments, runs) and whole


def parity_of_generate(arguments, runs):
    """True when generate has the same logits on both, by the largest of them."""
    name, allowed = "fp32: logits of generate, GPU against CPU", 1e-4
    try:
        ours, theirs = runs.logits("cuda"), runs.logits("cpu")
    except RuntimeError as error:
        record(arguments, "parity", case=name, error=str(error))
        print(f"{name:48s} did not run: {error}", flush=True)
        return False
    apart = max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) / max(abs(b) for b in theirs)
    record(arguments, "parity", case=name, loss=apart, norm=0.0, allowed=allowed)
    print(f"{name:48s} {apart:.1e}, allowed {allowed:.0e}: {'agree' if apart <= allowed else 'DIFFER'}", flush=True)
    return apart <= allowed


def trace(arguments, work):
    """Three traced steps of the variant that is compared first; the trace goes to --trace."""
    runs = Runs(arguments, work, arguments.model, 8, arguments.micro)
    kept = arguments.trace or work / "trace.json"
    rows = runs.trireme(VARIANTS["Trireme, recompute selective"] | {"metrics.trace_steps": [5, 6, 7]}, trace=kept)
    spans, kernels, groups = kernels_of(kept)
    step_ms = statistics.median(row["step_seconds"] for row in rows[2:]) * 1e3
    record(arguments, "trace" if arguments.model == "1b" else f"trace-{arguments.model}", model=arguments.model, spans=spans,
           kernels=kernels, groups=groups, step_ms=step_ms)
    print(f"{spans} spans in the trace of 3 steps; step {step_ms:.1f} ms")
    return spans > 0


def parameters(shape):
    """Of a Llama whose embeddings are not tied."""
    hidden, head = shape["hidden_size"], shape["hidden_size"] // shape["num_attention_heads"]
    attention = 2 * hidden * hidden + 2 * hidden * head * shape["num_key_value_heads"]
    layer = attention + 3 * hidden * shape["intermediate_size"] + 2 * hidden
    return 2 * shape["vocab_size"] * hidden + shape["num_hidden_layers"] * layer + hidden


def busy(spans):
    """[begin, end) spans that may overlap, as disjoint ones in order."""
    joined = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([begin, end])
    return joined


def overlap(trace):
    """Overlap of computing and moving (copies both ways, updates on the host), as a fraction of the shorter one."""
    events = trace["traceEvents"]
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    spans = {True: [], False: []}
    for e in events:
        if e["ph"] == "X" and lanes[e["tid"]] in ("compute", "device to host", "host to device", "host"):
            spans[lanes[e["tid"]] == "compute"].append((e["ts"], e["ts"] + e["dur"]))
    compute, moves = busy(spans[True]), busy(spans[False])
    both = sum(max(0, min(a[1], b[1]) - max(a[0], b[0])) for a in compute for b in moves)
    shorter = min(sum(end - begin for begin, end in each) for each in (compute, moves))
    return both / shorter if shorter > 0 else 0.0


def big(arguments, work):
    """A model of 6 billion parameters under memory.budget, its parameters in host memory."""
    runs = Runs(arguments, work, "6b", 6, 2)
    trace = arguments.trace or work / "trace.json"
    with PeakMemory() as memory:
        rows = runs.trireme(BIG | {"memory.budget": "4GiB" if arguments.rehearsal else "40GiB",
                                   "metrics.trace_steps": [3], "optimizer.lr": 1e-4}, trace=trace)
    beside = overlap(json.loads(pathlib.Path(trace).read_text()))
    losses = [row["loss"] if row["loss"] is not None else float("nan") for row in rows]
    host = max(row["memory_peak_bytes"]["rss"] for row in rows) / 2**30
    record(arguments, "big", parameters=parameters(runs.shape), device_gib=memory.gib, host_gib=host, overlap=beside, losses=losses)
    print(f"{parameters(runs.shape) / 1e9:.2f}e9 parameters: {memory.gib:.1f} GiB of the GPU, {host:.1f} GiB of the host, "
          f"{runs.tokens_per_second(rows):.0f} tokens/s, losses {losses}; copies and updates beside compute: {beside:.0%}")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["speed", "trace", "curve", "parity", "mixture", "nccl", "big", "clocks"])
    parser.add_argument("--trireme", type=pathlib.Path, required=True, help="the program")
    parser.add_argument("--model", choices=["1b", "3b", "160m", "small"], default="1b", help="of speed")
    parser.add_argument("--micro", type=int, default=4, help="sequences of a step, of speed")
    parser.add_argument("--steps", type=int, help="20 of speed, 2000 of curve")
    parser.add_argument("--wrapper", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2] / "support" / "one_gpu_rank.sh",
                        help="of nccl: starts a rank that shares the GPU")
    parser.add_argument("--part", choices=[*PARTS, "ends"], default="all", help="of speed: what decides the ratio, or the other variants")
    parser.add_argument("--variants", nargs="*", choices=list(VARIANTS), help="of speed: these and no others")
    parser.add_argument("--limit", type=int, default=240, help="seconds that one run may take")
    parser.add_argument("--rehearsal", action="store_true", help="tiny shapes, few steps, the peer on the CPU")
    parser.add_argument("--measured", type=pathlib.Path, help="a file for tests/gpu_judge.py, appended to")
    parser.add_argument("--trace", type=pathlib.Path, help="of big and trace: where the trace goes")
    arguments = parser.parse_args()
    arguments.steps = arguments.steps or (2000 if arguments.action == "curve" else 20)
    if arguments.rehearsal:
        arguments.steps = 4
    with tempfile.TemporaryDirectory(prefix="trireme-gpu-") as work:
        actions = {"speed": speed, "trace": trace, "curve": curve, "parity": parity, "big": big,
                   "mixture": lambda a, folder: mixture(a, folder, Runs, PeakMemory), "nccl": lambda a, folder: nccl(a, folder, Runs),
                   "clocks": lambda a, folder: clocks(a, folder, Runs, record, VARIANTS["Trireme, recompute selective"])}
        return 0 if actions[arguments.action](arguments, pathlib.Path(work)) else 1


if __name__ == "__main__":
    sys.exit(main())
