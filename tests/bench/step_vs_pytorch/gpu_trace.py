# SPDX-License-Identifier: Apache-2.0
"""Reads the GPU kernels of a trace of three steps."""
import json
import pathlib
import re

STEPS = 3
# Kernels of a trace, by name; the first that matches.
GROUPS = {
    "attention": r"cudnn|flash_(fwd|bwd)|fmha|sdpa",
    "products": r"nvjet|cutlass|xmma|gemm|cublasLt|splitK",
    "loss and embedding": r"cross_entropy|statistics_kernel|gradient_part|scatter_(cut_)?kernel|::Gather<|[sS]ort",
    "norms, RoPE, SwiGLU": r"(forward|backward|head)_kernel|GatedUnit|Rotate|PlaceGradients|sum_chunks",
    "AdamW and the norm": r"Update|squares_kernel|add_sum",
    "copies and fills": r"Memcpy|Memset|copy|[fF]ill|Cast|AddInto",
}


def group_of(kernel):
    """The group that a kernel of a trace belongs to."""
    return next((group for group, pattern in GROUPS.items() if re.search(pattern, kernel)), "other")


def kernels_of(trace):
    """How many spans a trace of three steps has, how many kernels have a name of their own, and milliseconds of a step by group. Prints the
    longest kernels."""
    events = [e for e in json.loads(pathlib.Path(trace).read_text())["traceEvents"] if e["ph"] == "X"]
    kernels, groups = {}, {}
    for e in events:
        if e.get("cat") == "kernel":
            count, total = kernels.get(e["name"], (0, 0.0))
            kernels[e["name"]] = count + 1, total + e["dur"]
    for name, (_, total) in kernels.items():
        groups[group_of(name)] = groups.get(group_of(name), 0.0) + total / STEPS / 1e3
    print(f"{'ms a step':>10s} {'calls':>6s}  kernel" if kernels else "no kernels in the trace: libtorch's profiler recorded none")
    for name, (count, total) in sorted(kernels.items(), key=lambda item: -item[1][1])[:30]:
        print(f"{total / STEPS / 1e3:10.3f} {count // STEPS:6d}  {name[:110]}")
    return len(events), len(kernels), groups
