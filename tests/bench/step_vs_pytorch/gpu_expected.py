#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a step of Llama 1B and 3B should take on an H200, group of kernels by group of kernels, beside what a trace shows.

    gpu_expected.py                       the table of docs/gpus.md
    gpu_expected.py measured.jsonl        the same with what tests/gpu.sh has measured
    gpu_expected.py --plan TRIREME        what `trireme plan` predicts for each variant that is judged, beside 78 and 139 GiB

On paper: products at 700 TFLOP/s, cuDNN's attention at 340 or 460 TFLOP/s of its causal half (heads of 64 or 128), bytes at 4 TB/s (85% of
4.8). A trace has no word for which product a kernel computes, so they are one group there; the parts stand below it.
"""
import argparse
import json
import pathlib
import re
import sys
import tempfile

from gpu import BIG, OUTSIDE_GIB, VARIANTS
from gpu_runs import PEAK_FLOPS, SHAPES, Runs

PRODUCT_RATE, ATTENTION_RATE, BYTE_RATE = 700e12, {64: 340e12, 128: 460e12}, 4e12
MODELS = {"1b": 4, "3b": 2}  # sequences of a step
GPUS = {"H100": 78, "H200": 139}  # GiB
# Kernels of a trace, by name; the first that matches.
KERNELS = {
    "attention": r"cudnn|flash_(fwd|bwd)|fmha|sdpa",
    "products": r"nvjet|cutlass|xmma|gemm|cublasLt|splitK",
    "loss and embedding": r"cross_entropy|statistics_kernel|gradient_part|scatter_(cut_)?kernel|::Gather<|[sS]ort",
    "norms, RoPE, SwiGLU": r"(forward|backward)_kernel|GatedUnit|Rotate|PlaceGradients|sum_chunks",
    "AdamW and the norm": r"Update|squares_kernel|add_sum",
    "copies and fills": r"Memcpy|Memset|copy|[fF]ill|Cast|AddInto",
}


def parts(model):
    """(group, part, amount as text, seconds) on paper."""
    shape, tokens = SHAPES[model], MODELS[model] * SHAPES[model]["seq_len"]
    hidden, inner, layers, vocab = (shape[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size"))
    head = hidden // shape["num_attention_heads"]
    keys = head * shape["num_key_value_heads"]
    for name, wide, times in (("queries, keys and values", hidden + 2 * keys, layers), ("after attention", hidden, layers),
                              ("gate and up", 2 * inner, layers), ("down", inner, layers), ("head", vocab, 1)):
        flops = 6 * tokens * hidden * wide * times
        yield "products", name, f"{flops / 1e12:.1f} TFLOP", flops / PRODUCT_RATE
    flops = 3.5 * 2 * tokens * shape["seq_len"] * hidden * layers
    yield "attention", "", f"{flops / 1e12:.1f} TFLOP of the causal half", flops / ATTENTION_RATE[head]
    # Elements of a token in a layer. Forward: two norms 4h, RoPE 2(q + k), SwiGLU 3f. Backward: norms again 4h and backward 8h, SwiGLU
    # 6f, gradients of q, k, v from the library's tensors, rotated back, 2(q + 2k).
    elements = 16 * hidden + 9 * inner + 2 * (hidden + keys) + 2 * (hidden + 2 * keys)
    yield "norms, RoPE, SwiGLU", "", f"{2 * elements / 1e3:.0f} KB a token and layer", 2 * elements * tokens * layers / BYTE_RATE
    # Logits read and written once; the embedding's gradient cleared, and its rows read and written.
    amount = 4 * tokens * vocab + 4 * vocab * hidden + 14 * tokens * hidden
    yield "loss and embedding", "", f"{amount / 1e9:.1f} GB", amount / BYTE_RATE
    all_parameters = 2 * vocab * hidden + hidden + layers * (2 * hidden * hidden + 2 * hidden * keys + 3 * hidden * inner + 2 * hidden)
    yield "AdamW and the norm", "", "34 bytes a parameter", 34 * all_parameters / BYTE_RATE


def flops_of_step(model):
    """As metrics.jsonl counts them for the MFU: attention in full."""
    shape, tokens = SHAPES[model], MODELS[model] * SHAPES[model]["seq_len"]
    products = sum(seconds for group, _, _, seconds in parts(model) if group == "products") * PRODUCT_RATE
    return products + 12 * tokens * shape["seq_len"] * shape["hidden_size"] * shape["num_hidden_layers"]


def group_of(kernel):
    """The group that a kernel of a trace belongs to."""
    return next((group for group, pattern in KERNELS.items() if re.search(pattern, kernel)), "other")


def measured_of(path):
    """Milliseconds of a step by model and group, from the records of `gpu.py trace`."""
    found = {}
    for line in pathlib.Path(path).read_text().splitlines():
        record = json.loads(line) if line.strip() else {}
        if record.get("step") == "trace" and "groups" in record:
            found[record.get("model", "1b")] = record["groups"] | {"step": record["step_ms"]}
    return found


def table(measured):
    """Markdown."""
    def cell(model, group):
        return f"{measured[model].get(group, 0.0):.1f}" if model in measured else ""
    lines = ["| what | 1B | ms | measured | 3B | ms | measured |", "|---|---|---|---|---|---|---|"]
    rows = {model: list(parts(model)) for model in MODELS}
    totals = {model: sum(row[3] for row in rows[model]) for model in MODELS}
    for group in KERNELS:
        of = {model: [row for row in rows[model] if row[0] == group] for model in MODELS}
        first = next(iter(of.values()))
        if len(first) != 1:
            times = {model: f"{sum(row[3] for row in of[model]) * 1e3:.0f}" if first else "0" for model in MODELS}
            lines.append(f"| {group} | | {times['1b']} | {cell('1b', group)} | | {times['3b']} | {cell('3b', group)} |")
        for one, three in zip(*of.values()):
            name, values = f"- {one[1]}" if one[1] else group, [cell(m, group) if not one[1] else "" for m in MODELS]
            lines.append(f"| {name} | {one[2]} | {one[3] * 1e3:.0f} | {values[0]} | {three[2]} | {three[3] * 1e3:.0f} | {values[1]} |")
    lines.append(f"| other | | | {cell('1b', 'other')} | | | {cell('3b', 'other')} |")
    lines.append(f"| step | | {totals['1b'] * 1e3:.0f} | {cell('1b', 'step')} | | {totals['3b'] * 1e3:.0f} | {cell('3b', 'step')} |")
    expected = {model: flops_of_step(model) / totals[model] / PEAK_FLOPS for model in MODELS}
    seen = {m: f"{flops_of_step(m) / (measured[m]['step'] / 1e3) / PEAK_FLOPS:.0%}" if m in measured else "" for m in MODELS}
    lines.append(f"| MFU of {PEAK_FLOPS / 1e12:.0f} TFLOP/s | {flops_of_step('1b') / 1e12:.0f} TFLOP | {expected['1b']:.0%} | {seen['1b']} "
                 f"| {flops_of_step('3b') / 1e12:.0f} TFLOP | {expected['3b']:.0%} | {seen['3b']} |")
    return "\n".join(lines)


def planned(trireme, model, micro, settings):
    """GiB of the GPU and of the host that `trireme plan` predicts."""
    with tempfile.TemporaryDirectory() as work:
        runs = Runs.__new__(Runs)  # without tokens: nothing is trained
        runs.a, runs.work, runs.steps, runs.micro, runs.weights = argparse.Namespace(trireme=trireme, limit=60), pathlib.Path(work), 20, micro, False
        runs.shape, runs.tokens = SHAPES[model], pathlib.Path(work) / "tokens.bin"
        runs.tokens.touch()
        host = re.search(r"^in host memory: total +([0-9.]+) GiB", runs.plan(settings), re.MULTILINE)
        return runs.planned_gib(settings), float(host[1]) if host else 0.0


def plan_table(trireme):
    """Markdown."""
    def fits(gib):
        names = [name for name, memory in GPUS.items() if gib + OUTSIDE_GIB <= memory]
        return "both" if len(names) == len(GPUS) else ", ".join(names) or "none"
    lines = ["| variant | 1B GiB | fits | 3B GiB | fits | host GiB, 1B and 3B |", "|---|---|---|---|---|---|"]
    for name, settings in VARIANTS.items():
        if not name.startswith("Trireme"):
            continue
        (one, host_one), (three, host_three) = (planned(trireme, model, micro, settings) for model, micro in MODELS.items())
        host = f"{host_one:.1f}, {host_three:.1f}" if host_one else ""
        lines.append(f"| {name.removeprefix('Trireme, ')} | {one:.1f} | {fits(one)} | {three:.1f} | {fits(three)} | {host} |")
    gib, host = planned(trireme, "6b", 2, BIG | {"memory.budget": "40GiB"})
    lines.append(f"| `big`: 6B, parameters offloaded, recompute block | {gib:.1f} | {fits(gib)} | | | {host:.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--plan"]:
        print(plan_table(sys.argv[2]))
    else:
        print(table(measured_of(sys.argv[1]) if len(sys.argv) > 1 else {}))
