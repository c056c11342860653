#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a step of Llama 1B and 3B should take on an H200, group of kernels by group of kernels, beside what a trace shows; start-up,
memory, the speed of each kernel; what fp8 should save.

    gpu_expected.py                       the tables of docs/lab/2026-11-27-h200.md, with measured.jsonl in this folder: the records of GPUs so far
    gpu_expected.py FILE                  the same with what tests/gpu.sh has measured
    gpu_expected.py --plan TRIREME        what `trireme plan` predicts for each variant that is judged, beside 78 and 139 GiB

On paper: products at 700 TFLOP/s, cuDNN's attention at 340 or 460 TFLOP/s of its causal half (heads of 64 or 128), bytes at 4 TB/s (85% of
4.8). A trace has no word for which product a kernel computes, so they are one group there; the parts stand below it.
"""
import argparse
import pathlib
import re
import sys
import tempfile

# tests/, for the module that reads records; a pack has that module in this folder.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))
from gpu import BIG, OUTSIDE_GIB, VARIANTS, parameters
from gpu_judge import BANDWIDTH, records_of
from gpu_runs import PEAK_FLOPS, SHAPES, Runs
from gpu_trace import GROUPS

PRODUCT_RATE, ATTENTION_RATE, BYTE_RATE = 700e12, {64: 340e12, 128: 460e12}, 4e12
MODELS = {"1b": 4, "3b": 2}  # sequences of a step
GPUS = {"H100": 78, "H200": 139}  # GiB
FIRST = "Trireme, recompute selective"
RECORDED = pathlib.Path(__file__).with_name("measured.jsonl")
FP8_GAIN = 1.6  # of products, by their rate in bf16
# Bandwidth-bound kernels of kernels_gpu_bench are compared with a copy, products by TFLOP/s; the others (routers) are not judged.
MOVING = ("rms_norm/forward", "rms_norm/backward", "layer_norm/backward", "rms_norm_heads/forward", "rms_norm_heads/backward", "rotate",
          "place_gradients", "swiglu/forward", "swiglu/backward", "cross_entropy/backward", "embedding/gather", "embedding/scatter_add", "cast",
          "experts/gather_rows", "experts/sum_rows", "experts/scale_rows", "experts/weight_gradients", "adamw", "sum_of_squares")
MULTIPLYING = {"gemm/forward": PRODUCT_RATE, "gemm/backward_input": PRODUCT_RATE, "gemm/backward_weight": PRODUCT_RATE,
               "gemm/backward_weight_add": PRODUCT_RATE, "experts/grouped_product": PRODUCT_RATE, "attention/cudnn": ATTENTION_RATE[64]}


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
    yield "AdamW and the norm", "", "34 bytes a parameter", 34 * parameters(shape) / BYTE_RATE


def flops_of_step(model):
    """As metrics.jsonl counts them for the MFU: attention in full."""
    shape, tokens = SHAPES[model], MODELS[model] * SHAPES[model]["seq_len"]
    products = sum(seconds for group, _, _, seconds in parts(model) if group == "products") * PRODUCT_RATE
    return products + 12 * tokens * shape["seq_len"] * shape["hidden_size"] * shape["num_hidden_layers"]


def start_seconds(model):
    """From the start of the program to the end of its first step: libraries, CUDA and NCCL 3 s, a guess; 2 ns of a core for each initial value
    (measured on a CPU with AVX-512), 16 cores, or its four bytes over PCIe at 25 GB/s from page-locked memory, overlapped with it; up to eight
    algorithms of each product run four times."""
    shape = SHAPES[model]
    products = {name: seconds for group, name, _, seconds in parts(model) if group == "products"}
    once = sum(seconds if name == "head" else seconds / shape["num_hidden_layers"] for name, seconds in products.items())
    return 3 + parameters(shape) * max(2e-9 / 16, 4 / 25e9) + 8 * 4 * once


def measured_of(text):
    """From the records of tests/gpu.sh: milliseconds of a step by model and group, of `gpu.py trace`."""
    return {r.get("model", "1b"): r["groups"] | {"step": r["step_ms"]} for r in records_of(text) if r["step"].startswith("trace") and "groups" in r}


def named(text, *steps):
    """The last record of each name that measured something."""
    return {r["name"]: r for r in records_of(text) if r["step"] in steps and "name" in r}


def run_table(text, plans=None):
    """Markdown: memory and start-up of a run with `memory.recompute = "selective"`, compiled FSDP2's beside them. plans: GiB by model; else
    as recorded."""
    lines = ["| what | 1B | measured | compiled FSDP2 | 3B | measured | compiled FSDP2 |", "|---|---|---|---|---|---|---|"]
    memory, start = [], []
    for model in MODELS:
        rows = named(text, f"speed-{model}", f"variants-{model}")
        ours, peers = (rows.get(name, {}) for name in (FIRST, "PyTorch compiled"))
        plan = plans[model] if plans else ours.get("planned_gib")
        memory.append(f"{plan + OUTSIDE_GIB:.1f}" if plan else "")
        memory += [f"{row['gib']:.1f}" if row.get("gib") else "" for row in (ours, peers)]
        start.append(f"{start_seconds(model):.0f}")
        start += [f"{row['start_seconds']:.1f}" if row.get("start_seconds") else "" for row in (ours, peers)]
    return "\n".join([*lines, f"| memory, {OUTSIDE_GIB} outside of the plan, GiB | {' | '.join(memory)} |",
                      f"| program's start to the end of the first step, s | {' | '.join(start)} |"])


def kernel_table(text):
    """Markdown: each kernel of kernels_gpu_bench for which something is expected."""
    rows, lines = named(text, "kernels"), ["| kernel | expected | measured |", "|---|---|---|"]
    for name in MOVING:
        seen = f"{rows[name]['ratio']:.0%}, {rows[name].get('GBps', 0) / 1e3:.2f} TB/s" if "ratio" in rows.get(name, {}) else ""
        lines.append(f"| {name} | {BANDWIDTH:.0%} of a copy | {seen} |")
    for name, rate in MULTIPLYING.items():
        seen = f"{rows[name]['TFLOPs']:.0f}" if "TFLOPs" in rows.get(name, {}) else ""
        lines.append(f"| {name} | {rate / 1e12:.0f} TFLOP/s | {seen} |")
    return "\n".join(lines)


def memory_table(text):
    """Markdown: planned and measured memory of each variant, as far as measured, and the peer's."""
    lines = ["| variant | 1B planned GiB, with what lies outside | measured | 3B planned GiB | measured |", "|---|---|---|---|---|"]
    of = {model: named(text, f"speed-{model}", f"variants-{model}") for model in MODELS}
    for name in VARIANTS:
        cells = []
        for row in (of[model].get(name, {}) for model in MODELS):
            cells.append(f"{row['planned_gib'] + OUTSIDE_GIB:.1f}" if row.get("planned_gib") else "")
            cells.append("does not fit" if "skipped" in row else f"{row['gib']:.1f}" if row.get("gib") else "")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def fp8_table():
    """Markdown: the step in bf16 and in fp8 (`rowwise`) on paper."""
    rows = {}
    for model in MODELS:
        shape, tokens = SHAPES[model], MODELS[model] * SHAPES[model]["seq_len"]
        hidden, inner, layers = (shape[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers"))
        keys = hidden // shape["num_attention_heads"] * shape["num_key_value_heads"]
        bf16 = sum(seconds for group, name, _, seconds in parts(model) if group == "products" and name != "head")
        # Inputs of the four products and gradients of their outputs: two bytes read, one written.
        rounded = 3 * ((3 * hidden + inner) + (3 * hidden + 2 * keys + 2 * inner))
        weights = hidden * (hidden + 2 * keys) + hidden * hidden + 3 * hidden * inner
        rounding = layers * (tokens * rounded + 8 * weights) / BYTE_RATE
        step, fp8 = sum(row[3] for row in parts(model)), bf16 * (2 / 3 / FP8_GAIN + 1 / 3)
        rows[model] = rounded / 1e3, bf16 * 1e3, fp8 * 1e3, rounding * 1e3, step * 1e3, (step - bf16 + fp8 + rounding) * 1e3
    one, three = rows.values()
    return "\n".join([
        "| | 1B | 3B |", "|---|---|---|",
        f"| products of attention and MLP in bf16, ms | {one[1]:.0f} | {three[1]:.0f} |",
        f"| the same in fp8 but for weight gradients (a third) | {one[2]:.0f} | {three[2]:.0f} |",
        f"| rounding: {one[0]:.0f} and {three[0]:.0f} KB a token and layer, 8 bytes a weight, ms | {one[3]:.0f} | {three[3]:.0f} |",
        f"| step, ms (bf16: {one[4]:.0f}, {three[4]:.0f}) | {one[5]:.0f} | {three[5]:.0f} |"])


def limits_table(text):
    """Markdown: the steps clocks, attention, products and overlap, as far as measured; empty without them."""
    lines = []
    for step, columns in (("clocks", ("mfu", "mhz", "mhz_p10", "watts")), ("attention", ("TFLOPs",)),
                          ("products", ("TFLOPs", "of_many", "ratio", "algorithms")),
                          ("overlap", ("multiprocessors", "products_ms", "adamw_ms", "adamw_on_part_ms", "both_ms", "gain"))):
        rows = {name: row for name, row in named(text, step).items() if columns[0] in row}
        if rows:
            lines += ["", f"| {step} | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
        lines += [f"| {name.removeprefix(step + '/')} | {' | '.join(f'{row[key]:.4g}' if key in row else '' for key in columns)} |"
                  for name, row in rows.items()]
    return "\n".join(lines[1:])


def table(measured):
    """Markdown."""
    def cell(model, group):
        return f"{measured[model].get(group, 0.0):.1f}" if model in measured else ""
    lines = ["| what | 1B | ms | measured | 3B | ms | measured |", "|---|---|---|---|---|---|---|"]
    rows = {model: list(parts(model)) for model in MODELS}
    totals = {model: sum(row[3] for row in rows[model]) for model in MODELS}
    for group in GROUPS:
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


def plan_tables(trireme):
    """Markdown: every variant, and the figures of a run."""
    def fits(gib):
        names = [name for name, memory in GPUS.items() if gib + OUTSIDE_GIB <= memory]
        return "both" if len(names) == len(GPUS) else ", ".join(names) or "none"
    plans, lines = {}, ["| variant | 1B GiB | fits | 3B GiB | fits | host GiB, 1B and 3B |", "|---|---|---|---|---|---|"]
    for name, settings in VARIANTS.items():
        if not name.startswith("Trireme") or "environment" in settings:  # of which no plan knows
            continue
        (one, host_one), (three, host_three) = (planned(trireme, model, micro, settings) for model, micro in MODELS.items())
        plans[name] = {"1b": one, "3b": three}
        host = f"{host_one:.1f}, {host_three:.1f}" if host_one else ""
        lines.append(f"| {name.removeprefix('Trireme, ')} | {one:.1f} | {fits(one)} | {three:.1f} | {fits(three)} | {host} |")
    gib, host = planned(trireme, "6b", 2, BIG | {"memory.budget": "40GiB"})
    lines.append(f"| `big`: 6B, parameters offloaded, recompute block | {gib:.1f} | {fits(gib)} | | | {host:.1f} |")
    return "\n".join(lines), run_table(RECORDED.read_text(), plans[FIRST])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--plan"]:
        print("\n\n".join(plan_tables(sys.argv[2])))
    else:
        seen = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else RECORDED).read_text()
        also = (run_table(seen), memory_table(seen), limits_table(seen)) if len(sys.argv) > 1 else (fp8_table(),)
        print("\n\n".join((table(measured_of(seen)), kernel_table(seen), *also)))
