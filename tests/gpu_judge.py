#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Judges what tests/gpu.sh measured: a line for each criterion, `PASS|FAIL|NOT RUN  criterion  measured  allowed`.

    gpu_judge.py [--asked STEP,STEP] [--only STEP] MEASURED.jsonl [...]   several runs are judged together; the last word of each counts

SKIPPED is a variant that `trireme plan` predicts not to fit the GPU: neither passed nor failed.
The exit code is 0 where nothing failed and every step that was asked for was measured in whole. Records are JSON objects, one
a line, each with a `step`; what else they hold is read below. A record {"step", "ended", "seconds"} closes a step."""
import argparse
import json
import pathlib
import sys

MODELS = ("1b", "3b")
MFU = {"H200": {"1b": 0.55, "3b": 0.58}, "H100": {"1b": 0.50, "3b": 0.45}}  # of 989 TFLOP/s, attention counted in full
SPEED_UP = 1.15  # against compiled PyTorch FSDP2 on one GPU, in less memory than it takes
GAP, GAP_STEPS, GAP_TAIL = 0.003, 2000, 500
BANDWIDTH = 0.85  # of a copy's
BIG_PARAMETERS, BIG_GIB, BIG_HOST_GIB, OVERLAP = 6e9, 40, 128, 0.5
PARITY = ("fp32: GPU against CPU", "bf16: GPU against CPU", "fp32: recompute block against none",
          "fp32: offload of parameters against none", "fp32: documents kept apart, GPU against CPU",
          "bf16: graphs against op by op", "bf16: graphs and offload against offload", "fp32: four ranks on one GPU by MPI against one",
          "fp32: two ranks by tensor, MPI, against one", "fp32: logits of generate, GPU against CPU")
EXPERTS = ("fp32: experts, GPU against CPU", "bf16: experts, GPU against CPU", "fp32: two expert ranks on one GPU by MPI against one")
RECOMPUTED = "Trireme, recompute block"
FIRST = ("Trireme, recompute selective", "Trireme, recompute selective, graphs", "PyTorch compiled")  # of a speed- step; others: variants-
RESIDENT = ("Trireme, recompute none", "Trireme, recompute selective", "Trireme, recompute selective, graphs", RECOMPUTED)
OFFLOADED = ("Trireme, offload optimizer", "Trireme, offload parameters", "Trireme, offload activations")
COMPILED = ("PyTorch compiled", "PyTorch compiled, recompute block")
TRACES = {"1b": "trace", "3b": "trace-3b"}
STEPS = ("tests", "kernels", "speed-1b", "trace", "parity", "speed-3b", "trace-3b", "variants-1b", "curve", "variants-3b", "nccl", "nccl-more",
         "mixture", "mpi", "clocks", "attention", "products", "overlap", "big", "sanitizer")
LIMITS = ("clocks", "attention", "products", "overlap")  # measured, not judged: they decide what is changed next
# Runs of ranks that share one GPU, over NCCL, compared with the same over MPI: gpu_nccl.py.
NCCL_PARITY = {"nccl": tuple(f"NCCL against MPI: {name}" for name in (
    "fsdp", "fsdp on 4 ranks", "hsdp", "tensor", "pipeline 1f1b", "pipeline zbv", "context gather", "context heads", "experts", "bf16_wire", "windows",
    "a rank stopped for half of the deadline")), "nccl-more": tuple(f"NCCL against MPI: {name}" for name in (
        "default protocols", "deterministic, twice", "kept after forward", "kept after forward, windows", "bf16_wire, windows",
        "bf16_wire, windows, 4 ranks", "pipeline and tensor", "context and shards", "bf16"))}
NCCL_ENDS = {"killed rank, 2 ranks": "the others within 5 s, rank named, reports", "killed rank, 4 ranks": "the others within 5 s, rank named, reports",
             "stopped rank": "exit code 7 within the timeout and 5 s", "refused: one id for all": "exit code 5", "refused: a rank without an id": "exit code 5"}
NCCL_PROBES = {"nccl": ((2, "basic"), (2, "cost"), (2, "windows"), (2, "order"), (2, "graph"), (2, "abort"), (2, "lazy"), (2, "kill"), (4, "basic"),
                        (4, "order"), (4, "kill")),
               "nccl-more": ((2, "stop"), (2, "many"), (4, "many"), (4, "windows"), (4, "abort"), (8, "basic"))}


class Verdicts:
    def __init__(self):
        self.lines = []

    def add(self, step, criterion, measured, allowed, passed):
        """passed: None where nothing was measured."""
        word = "NOT RUN" if passed is None else "PASS" if passed else "FAIL"
        self.lines.append((step, word, criterion, measured, allowed))

    def text(self, only=None):
        lines = [line for line in self.lines if only in (None, line[0])]
        widths = [max((len(line[i]) for line in lines), default=0) for i in (1, 2, 3)]
        return "\n".join(f"{word:{widths[0]}s}  {criterion:{widths[1]}s}  {measured:{widths[2]}s}  {allowed}".rstrip()
                         for _, word, criterion, measured, allowed in lines)

    def words(self, step):
        return [line[1] for line in self.lines if line[0] == step]


def named(records, key="name"):
    """The last record of each name."""
    return {record[key]: record for record in records if key in record}


def judge_programs(step, records, what, verdicts):
    ran = list(named(({**r, "key": f"{r['program']} x{r.get('ranks', 1)}"} for r in records if "program" in r), "key").values())
    failed = [f"{r['program']} ({r.get('ranks', 1)} ranks): {r['code']}" for r in ran if r["code"] != 0]
    # A test program that skips everything has tested nothing.
    failed += [f"{r['program']}: skipped all" for r in ran if r["code"] == 0 and r.get("tests", 1) > 0 and r.get("tests") == r.get("skipped")]
    if step == "nccl":
        failed += [f"{r['program']}: {r['without_nccl']} tests skipped without NCCL" for r in ran if r.get("without_nccl", 0) > 0]
    measured = f"{len(ran)} programs, " + ("none failed" if not failed else "; ".join(failed))
    verdicts.add(step, what, measured if ran else "", "all pass", not failed if ran else None)


def judge_parity(step, names, records, verdicts):
    cases = named(records, "case")
    for case in names:
        r = cases.get(case)
        if r is None:
            verdicts.add(step, case, "", "", None)
        elif "error" in r:
            verdicts.add(step, case, "did not run", r["error"][-100:].replace("\n", " "), False)
        else:
            right = r["loss"] <= r["allowed"] and r["norm"] <= 10 * r["allowed"]
            verdicts.add(step, case, f"loss {r['loss']:.1e}, norm {r['norm']:.1e}",
                         f"loss {r['allowed']:.0e}, norm {10 * r['allowed']:.0e}", right)


def judge_kernels(records, verdicts):
    kernels = named(records)
    if not kernels:
        verdicts.add("kernels", "bandwidth of each kernel", "", f"{BANDWIDTH:.0%} of a copy's", None)
    for name, r in kernels.items():
        if "error" in r:
            verdicts.add("kernels", name, "did not run", r["error"], False)
        elif "ratio" in r:
            verdicts.add("kernels", f"bandwidth of {name}", f"{r['ratio']:.0%}", f"{BANDWIDTH:.0%} of a copy's", r["ratio"] >= BANDWIDTH)


def fastest(rows, names):
    return max((rows[n] for n in names if "tokens_per_second" in rows.get(n, {})), key=lambda r: r["tokens_per_second"], default=None)


def judge_mfu(what, model, gpu, ours, step, verdicts):
    """Goals are a GPU's: 989 TFLOP/s is the peak of both, but not the memory's rate."""
    goal = next((goals[model] for name, goals in MFU.items() if name in gpu), None)
    mfu = ours.get("mfu") if ours else None
    measured = f"{mfu:.1%} ({ours['name'].removeprefix('Trireme, ')})" if mfu else ""
    if ours and goal is None:
        seen = gpu or "one that nvidia-smi did not name"
        verdicts.lines.append((step, "SKIPPED", f"{what}: MFU, fastest of ours", measured, f"goals are for {' and '.join(MFU)}, this is {seen}"))
        return
    allowed = f"{goal:.0%} or more on {gpu}" if goal else ", ".join(f"{goals[model]:.0%} on {name}" for name, goals in MFU.items())
    verdicts.add(step, f"{what}: MFU, fastest of ours", measured, allowed, None if not ours else mfu is not None and mfu >= goal)


def judge_speed(what, model, gpu, records, verdicts):
    """records: of the steps speed-MODEL and variants-MODEL on one GPU, the fastest of which may be of either. what: the model, or which on what."""
    step, others, rows = f"speed-{model}", f"variants-{model}", named(records)
    ours, theirs = fastest(rows, RESIDENT), fastest(rows, COMPILED)
    judge_mfu(what, model, gpu, ours, step, verdicts)
    pairs = [(step, "fastest of both", ours, theirs)]
    pairs.append((others, "both with recompute block", fastest(rows, [RECOMPUTED]), fastest(rows, COMPILED[1:])))
    for of, which, a, b in pairs:
        both = a is not None and b is not None
        ratio = a["tokens_per_second"] / b["tokens_per_second"] if both else None
        verdicts.add(of, f"{what}: speed by compiled FSDP2, {which}", f"{ratio:.2f}x" if both else "", f"{SPEED_UP}x or more",
                     ratio >= SPEED_UP if both else None)
        share = a["gib"] / b["gib"] if both and b["gib"] > 0 else None
        verdicts.add(of, f"{what}: memory by compiled FSDP2, {which}",
                     f"{share:.0%} ({a['gib']:.1f} of {b['gib']:.1f} GiB)" if share else "", "below 100%", share < 1 if share else None)
    for name in (*RESIDENT, *OFFLOADED, *COMPILED):
        r, of = rows.get(name), step if name in FIRST else others
        if r and "skipped" in r:
            verdicts.lines.append((of, "SKIPPED", f"{what}: {name} runs", "does not fit", r["skipped"]))
            continue
        measured = f"{r['tokens_per_second']:.0f} tokens/s, {r['gib']:.1f} GiB" if r and "error" not in r else "did not" if r else ""
        verdicts.add(of, f"{what}: {name} runs", measured, "", None if r is None else "error" not in r)


def judge_speeds(model, records, verdicts):
    """Speeds are not compared across GPUs: each GPU with records is judged separately."""
    gpus = sorted({r.get("gpu", "") for r in records if "name" in r}) or [""]
    for gpu in gpus:
        here, of_gpu = [r for r in records if r.get("gpu", "") == gpu], Verdicts()
        judge_speed(model if len(gpus) == 1 else f"{model} on {gpu or 'another GPU'}", model, gpu, here, of_gpu)
        ran = {r["step"] for r in here}  # of two GPUs, one may have taken this step and the other that
        verdicts.lines += [line for line in of_gpu.lines if len(gpus) == 1 or line[0] in ran]


def judge_trace(model, records, verdicts):
    r = next((r for r in reversed(records) if "spans" in r), None)
    verdicts.add(TRACES[model], f"{model}: trace of three steps", f"{r['spans']} spans" if r else "", "spans of every lane",
                 r["spans"] > 0 if r else None)


def judge_curve(records, verdicts):
    r = next((r for r in reversed(records) if "gap" in r), None)
    whole = r is not None and r["steps"] >= GAP_STEPS and r["tail"] >= GAP_TAIL
    measured = f"{r['gap']:.3%} over the last {r['tail']} of {r['steps']}" if r else ""
    verdicts.add("curve", "160M, bf16: mean gap to FSDP2", measured, f"below {GAP:.1%} over the last {GAP_TAIL} of {GAP_STEPS}",
                 whole and r["gap"] < GAP if r else None)


def judge_mixture(records, verdicts):
    judge_parity("mixture", EXPERTS, records, verdicts)
    judge_programs("mixture", records, "tests of experts", verdicts)
    r = named(records).get("Trireme")
    if r is None or "error" in r:
        verdicts.add("mixture", "128 experts: it trains", "did not run" if r else "", r["error"][-100:].replace("\n", " ") if r else "",
                     None if r is None else False)
        return
    mfu = f"MFU {r['mfu']:.1%}, " if r["mfu"] else ""
    verdicts.add("mixture", "128 experts: it trains", f"{r['tokens_per_second']:.0f} tokens/s, {mfu}{r['gib']:.1f} GiB, planned {r['planned_gib']:.1f}",
                 "the loss falls", r["losses"][-1] < r["losses"][0])  # false for NaN


def judge_nccl(step, records, verdicts):
    """records: of both steps of ranks that share one GPU over NCCL. """
    for ranks, group in NCCL_PROBES[step]:
        rows = named(({**r, "key": r["check"]} for r in records if r.get("probe") == group and r.get("ranks") == ranks), "key").values()
        wrong = [r["check"] + (f" ({r['value']})" if r["value"] != "-" else "") for r in rows if not r["passed"]]
        shown = "; ".join(wrong) or f"{len(rows)} checks" if rows else ""
        verdicts.add(step, f"NCCL alone, {ranks} ranks: {group}", shown, "all pass", not wrong if rows else None)
    for case, allowed in NCCL_ENDS.items() if step == "nccl" else ():
        r = named(records, "case").get(case)
        measured = "" if r is None else r["error"][-60:].replace("\n", " ") if "error" in r else ", ".join(
            f"{key} {r[key]:.1f}" if isinstance(r[key], float) else f"{key} {r[key]}" for key in ("code", "seconds", "named", "dumps") if key in r)
        verdicts.add(step, case, measured, allowed, None if r is None else r.get("right", False))
    judge_parity(step, NCCL_PARITY[step], [r for r in records if "loss" in r or "error" in r], verdicts)


def judge_limits(step, records, verdicts):
    """What was measured; fails only where a measurement did not run."""
    rows = named(records)
    failed = [f"{name}: {r['error'][-80:]}" for name, r in rows.items() if "error" in r]
    seen = {"clocks": lambda r: f"{r['mfu']:.1%} at {r['mhz']:.0f} MHz, {r['watts']:.0f} W" if "mhz" in r else f"{r['mfu']:.1%}",
            "attention": lambda r: f"{r['TFLOPs']:.0f} TFLOP/s", "products": lambda r: f"{r['TFLOPs']:.0f}, of many {r['of_many']:.0f} TFLOP/s",
            "overlap": lambda r: f"{r['gain']:.0%} of {r['adamw_ms']:.1f} ms hidden"}[step]
    for name, r in rows.items():
        if "error" not in r:
            verdicts.add(step, name, seen(r), "", True)
    verdicts.add(step, f"{step} measured", "; ".join(failed) or f"{len(rows)} cases" if rows else "", "all run", not failed if rows else None)


def judge_big(records, verdicts):
    r = next((r for r in reversed(records) if "parameters" in r), {})
    rows = (("parameters", "6B: parameters", "{:.2f}e9".format, f"{BIG_PARAMETERS * 1e-9:.0f}e9 or more", lambda v: v >= BIG_PARAMETERS, 1e-9),
            ("device_gib", "6B: memory of the GPU, all of it", "{:.1f} GiB".format, f"{BIG_GIB} GiB or less", lambda v: v <= BIG_GIB, 1),
            ("host_gib", "6B: memory of the host", "{:.1f} GiB".format, f"{BIG_HOST_GIB} GiB or less", lambda v: v <= BIG_HOST_GIB, 1),
            ("overlap", "6B: copies and updates beside compute", "{:.0%}".format, f"{OVERLAP:.0%} of the shorter or more",
             lambda v: v >= OVERLAP, 1))
    for key, criterion, write, allowed, right, scale in rows:
        value = r.get(key)
        # 0 GiB is not a measurement.
        seen = value is not None and (value > 0 or key == "overlap")
        verdicts.add("big", criterion, write(value * scale) if seen else "", allowed, right(value) if seen else None)
    losses = r.get("losses")
    verdicts.add("big", "6B: it trains", f"loss {losses[0]:.3f} to {losses[-1]:.3f}" if losses else "", "the loss falls",
                 losses[-1] < losses[0] if losses else None)  # false for NaN


def judge(records):
    """All criteria, in the order of the steps."""
    of = {step: [r for r in records if r["step"] == step] for step in STEPS}
    verdicts = Verdicts()
    judge_programs("tests", of["tests"], "tests on the GPU", verdicts)
    judge_kernels(of["kernels"], verdicts)
    for model in MODELS:
        judge_speeds(model, of[f"speed-{model}"] + of[f"variants-{model}"], verdicts)
        judge_trace(model, of[TRACES[model]], verdicts)
    judge_parity("parity", PARITY, of["parity"], verdicts)
    judge_curve(of["curve"], verdicts)
    for step in NCCL_PARITY:
        judge_nccl(step, of["nccl"] + of["nccl-more"], verdicts)
        left = [r for r in of[step] if r.get("case") == "memory left on the GPU"][-1:]
        verdicts.add(step, f"{step}: memory left on the GPU", f"{left[0]['mib']} MiB" if left else "", "below 200 MiB", left[0]["right"] if left else None)
    judge_programs("nccl", of["nccl"], "tests of ranks that share the GPU over NCCL", verdicts)
    judge_mixture(of["mixture"], verdicts)
    judge_programs("mpi", of["mpi"], "tests of ranks that share the GPU", verdicts)
    for step in LIMITS:
        judge_limits(step, of[step], verdicts)
    judge_programs("sanitizer", of["sanitizer"], "compute-sanitizer", verdicts)
    judge_big(of["big"], verdicts)
    for step in STEPS:  # the exit of a step is reported even if it has earlier measurements
        ended = [r for r in of[step] if "ended" in r][-1:]
        if ended and ended[0]["ended"] != 0:
            verdicts.add(step, f"step {step} ends well", f"code {ended[0]['ended']} after {ended[0]['seconds']} s", "code 0", False)
    return verdicts


def records_of(text):
    """The records of a file; a line that a killed step left half-written is none."""
    records = []
    for line in text.splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return [r for r in records if isinstance(r, dict) and "step" in r]


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--asked", default="", help="steps that have to be measured, separated by commas")
    parser.add_argument("--only", choices=STEPS, help="prints the lines of one step")
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    a = parser.parse_args(arguments)
    verdicts = judge([record for file in a.files for record in records_of(file.read_text())])
    print(verdicts.text(a.only))
    words = [line[1] for line in verdicts.lines]
    if not a.only:
        print(f"{words.count('PASS')} passed, {words.count('FAIL')} failed, {words.count('SKIPPED')} skipped, {words.count('NOT RUN')} not run")
    missing = any("NOT RUN" in verdicts.words(step) for step in a.asked.split(",") if step)
    return 1 if "FAIL" in words or missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
