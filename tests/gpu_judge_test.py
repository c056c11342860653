#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Feeds simulated measurements to gpu_judge.py, and simulated runs to gpu.py, whose records it judges. Needs no GPU."""
import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

TESTS = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS), str(TESTS / "bench" / "step_vs_pytorch")]
sys.dont_write_bytecode = True
import gpu  # noqa: E402
import gpu_judge  # noqa: E402
import gpu_nccl  # noqa: E402
import gpu_runs  # noqa: E402


def speed_records(model, ours=1.2, mfu=0.6, gib=80.0, gpu="NVIDIA H200"):
    """ours: tokens/s by the peer's; every variant of ours alike."""
    def step(name):
        return f"{'speed' if name in gpu_judge.FIRST else 'variants'}-{model}"

    records = [{"step": step(name), "name": name, "gpu": gpu, "tokens_per_second": 1000 * ours, "mfu": mfu, "gib": gib}
               for name in (*gpu_judge.RESIDENT, *gpu_judge.OFFLOADED)]
    return records + [{"step": step(name), "name": name, "gpu": gpu, "tokens_per_second": 1000.0, "mfu": 0.4, "gib": 100.0}
                      for name in gpu_judge.COMPILED]


def all_is_well():
    steps = ("tests", "mixture", "mpi", "nccl", "sanitizer")
    records = [{"step": step, "program": f"{step}_x", "ranks": 1, "code": 0, "tests": 3, "skipped": 1} for step in steps]
    records += [{"step": "parity", "case": case, "loss": 1e-7, "norm": 5e-6, "allowed": 1e-4} for case in gpu_judge.PARITY]
    records += [{"step": "mixture", "case": case, "loss": 1e-7, "norm": 5e-6, "allowed": 1e-4} for case in gpu_judge.EXPERTS]
    for step in gpu_judge.NCCL_PARITY:
        records += [{"step": step, "case": case, "loss": 0.0, "norm": 0.0, "allowed": 1e-6} for case in gpu_judge.NCCL_PARITY[step]]
        records += [{"step": step, "case": "memory left on the GPU", "mib": 0, "right": True}]
        records += [{"step": "nccl", "probe": group, "ranks": ranks, "check": f"{group}/one", "passed": True, "value": "-", "seconds": 0.1}
                    for ranks, group in gpu_judge.NCCL_PROBES[step]]
    records += [{"step": "nccl", "case": case, "seconds": 1.0, "named": True, "dumps": [0], "right": True} for case in gpu_judge.NCCL_ENDS]
    records += [{"step": "mixture", "name": "Trireme", "tokens_per_second": 5e4, "mfu": 0.3, "gib": 60.0, "planned_gib": 58.0, "losses": [10.5, 10.0]}]
    records += [{"step": "kernels", "name": "copy", "ratio": 1.0}, {"step": "kernels", "name": "rms_norm", "ratio": 0.85},
                {"step": "kernels", "name": "product"}]
    records += speed_records("1b") + speed_records("3b")
    records += [{"step": step, "spans": 400} for step in gpu_judge.TRACES.values()]
    records += [{"step": "curve", "steps": 2000, "tail": 500, "gap": 0.001}]
    records += [{"step": "big", "parameters": 6.03e9, "device_gib": 39.0, "host_gib": 110.0, "overlap": 0.7, "losses": [11.0, 10.5]}]
    records += [{"step": "clocks", "name": "1b", "mfu": 0.6, "mhz": 1700.0, "watts": 690.0},
                {"step": "attention", "name": "attention/1b", "TFLOPs": 400.0}, {"step": "products", "name": "products/1b", "TFLOPs": 700.0, "of_many": 720.0},
                {"step": "overlap", "name": "overlap/8", "gain": 0.5, "adamw_ms": 7.5}]
    return records + [{"step": step, "ended": 0, "seconds": 9} for step in gpu_judge.STEPS]


def changed(step, change, **which):
    """All is well but for the records of a step that hold `which`, which get `change`."""
    return [r | change if r["step"] == step and "ended" not in r and all(r.get(k) == v for k, v in which.items()) else r
            for r in all_is_well()]


def verdicts(records):
    return {criterion: word for _, word, criterion, _, _ in gpu_judge.judge(records).lines}


def failing(records):
    return [criterion for criterion, word in verdicts(records).items() if word != "PASS"]


class Judge(unittest.TestCase):
    def test_knows_every_run_of_ranks_that_share_a_gpu(self):
        for part, step in (("first", "nccl"), ("rest", "nccl-more")):
            cases = {f"NCCL against MPI: {name}" for name in gpu_nccl.CASES[part]}
            self.assertEqual(cases - set(gpu_judge.NCCL_PARITY[step]), set())

    def test_passes_what_meets_every_goal(self):
        self.assertEqual(failing(all_is_well()), [])

    def test_says_not_run_of_everything_when_nothing_was_measured(self):
        self.assertEqual({word for word in verdicts([]).values()}, {"NOT RUN"})

    def test_fails_each_goal_by_itself(self):
        cases = [
            ("fp32: GPU against CPU", changed("parity", {"loss": 1.1e-4}, case="fp32: GPU against CPU")),
            ("bf16: GPU against CPU", changed("parity", {"norm": float("nan")}, case="bf16: GPU against CPU")),
            ("bandwidth of rms_norm", changed("kernels", {"ratio": 0.849}, name="rms_norm")),
            ("160M, bf16: mean gap to FSDP2", changed("curve", {"gap": 0.003})),
            ("160M, bf16: mean gap to FSDP2", changed("curve", {"steps": 1999})),
            ("160M, bf16: mean gap to FSDP2", changed("curve", {"gap": float("nan")})),
            ("6B: parameters", changed("big", {"parameters": 5.9e9})),
            ("6B: memory of the GPU, all of it", changed("big", {"device_gib": 40.1})),
            ("6B: memory of the host", changed("big", {"host_gib": 129.0})),
            ("6B: copies and updates beside compute", changed("big", {"overlap": 0.49})),
            ("6B: it trains", changed("big", {"losses": [11.0, float("nan")]})),
            ("tests on the GPU", changed("tests", {"code": 1})),
            ("tests on the GPU", changed("tests", {"skipped": 3})),
            ("compute-sanitizer", changed("sanitizer", {"code": 9})),
            ("tests of ranks that share the GPU", changed("mpi", {"code": 1})),
            ("fp32: two expert ranks on one GPU by MPI against one",
             changed("mixture", {"loss": 2e-4}, case="fp32: two expert ranks on one GPU by MPI against one")),
            ("tests of experts", changed("mixture", {"code": 1}, program="mixture_x")),
            ("128 experts: it trains", changed("mixture", {"losses": [10.0, 10.5]}, name="Trireme")),
            ("128 experts: it trains", changed("mixture", {"error": "out of memory"}, name="Trireme")),
            ("NCCL against MPI: fsdp", changed("nccl", {"loss": 1.1e-6}, case="NCCL against MPI: fsdp")),
            ("NCCL against MPI: bf16", changed("nccl-more", {"error": "x"}, case="NCCL against MPI: bf16")),
            ("killed rank, 4 ranks", changed("nccl", {"right": False}, case="killed rank, 4 ranks")),
            ("stopped rank", changed("nccl", {"error": "it did not begin"} | {"right": False}, case="stopped rank")),
            ("refused: one id for all", changed("nccl", {"right": False}, case="refused: one id for all")),
            ("NCCL alone, 2 ranks: order", changed("nccl", {"passed": False}, probe="order", ranks=2)),
            ("NCCL alone, 8 ranks: basic", changed("nccl", {"passed": False}, probe="basic", ranks=8)),
            ("tests of ranks that share the GPU over NCCL", changed("nccl", {"code": 1}, program="nccl_x")),
            ("tests of ranks that share the GPU over NCCL", changed("nccl", {"without_nccl": 1}, program="nccl_x")),
            ("nccl-more: memory left on the GPU", changed("nccl-more", {"right": False, "mib": 500}, case="memory left on the GPU")),
            ("1b: trace of three steps", changed("trace", {"spans": 0})),
            ("3b: trace of three steps", changed("trace-3b", {"spans": 0})),
            ("1b: Trireme, offload parameters runs",
             changed("variants-1b", {"error": "out of memory"}, name="Trireme, offload parameters")),
        ]
        for criterion, records in cases:
            with self.subTest(criterion):
                self.assertEqual(failing(records), [criterion])
                self.assertEqual(verdicts(records)[criterion], "FAIL")
        slow = [r | {"mfu": 0.3} if r.get("name") in gpu_judge.RESIDENT and r["step"].endswith("1b") else r for r in all_is_well()]
        self.assertEqual(failing(slow), ["1b: MFU, fastest of ours"])

    def test_the_fastest_may_come_from_either_step(self):
        resident = {"name": "Trireme, recompute none"}
        slow = changed("variants-1b", {"tokens_per_second": 5000.0, "mfu": 0.45}, **resident)
        self.assertEqual(failing(slow), ["1b: MFU, fastest of ours"], "judged by the fastest, whatever the others have")

    def test_what_does_not_fit_is_skipped_and_fails_nothing(self):
        records = changed("variants-1b", {"skipped": "plan: 90.0 GiB"}, name="Trireme, recompute none")
        self.assertEqual(verdicts(records)["1b: Trireme, recompute none runs"], "SKIPPED")
        self.assertNotIn("FAIL", verdicts(records).values())

    def test_compares_the_fastest_with_the_fastest_and_like_with_like(self):
        records = [r for r in all_is_well() if r["step"] not in ("speed-1b", "variants-1b")]
        slow = failing(records + speed_records("1b", ours=1.14))
        self.assertEqual(slow, ["1b: speed by compiled FSDP2, fastest of both", "1b: speed by compiled FSDP2, both with recompute block"])
        large = failing(records + speed_records("1b", gib=100.0))
        self.assertEqual(large, ["1b: memory by compiled FSDP2, fastest of both", "1b: memory by compiled FSDP2, both with recompute block"])

    def test_goals_are_those_of_the_issue_and_of_the_gpu(self):
        others = [r for r in all_is_well() if not r["step"].startswith(("speed", "variants")) or "ended" in r]

        def word(model, mfu, gpu):
            return verdicts(others + speed_records(model, mfu=mfu, gpu=gpu))[f"{model}: MFU, fastest of ours"]

        for model, card, goal in (("1b", "NVIDIA H200", 0.55), ("3b", "NVIDIA H200", 0.58),
                                  ("1b", "NVIDIA H100 80GB HBM3", 0.50), ("3b", "NVIDIA H100 80GB HBM3", 0.45)):
            self.assertEqual((word(model, goal, card), word(model, goal - 1e-3, card)), ("PASS", "FAIL"), (model, card))
        self.assertEqual((word("1b", 0.9, "NVIDIA A100-SXM4-80GB"), word("1b", 0.9, "")), ("SKIPPED", "SKIPPED"))
        self.assertEqual(word("1b", None, "NVIDIA H200"), "FAIL", "a run without an MFU")

    def test_runs_on_two_gpus_are_not_compared_with_each_other(self):
        h100 = [r for r in speed_records("1b", mfu=0.52, gpu="NVIDIA H100") if r["step"] == "speed-1b"]
        fast = [r | {"tokens_per_second": 9e9} for r in speed_records("1b") if r["name"] in gpu_judge.COMPILED]
        words = verdicts(h100 + fast)
        self.assertEqual(words["1b on NVIDIA H100: speed by compiled FSDP2, fastest of both"], "PASS")
        self.assertEqual(words["1b on NVIDIA H100: MFU, fastest of ours"], "PASS")
        self.assertEqual(words["1b on NVIDIA H200: speed by compiled FSDP2, fastest of both"], "NOT RUN")
        self.assertNotIn("1b on NVIDIA H100: PyTorch compiled, recompute block runs", words, "that step ran on the other")

    def test_a_peer_that_did_not_run_is_no_success(self):
        records = changed("speed-3b", {"error": "no memory", "tokens_per_second": 0, "gib": 0}, name="PyTorch compiled")
        self.assertEqual(verdicts(records)["3b: PyTorch compiled runs"], "FAIL")
        none = [r for r in all_is_well() if r.get("name") not in gpu_judge.COMPILED]
        self.assertEqual(verdicts(none)["3b: speed by compiled FSDP2, fastest of both"], "NOT RUN")

    def test_a_step_that_was_stopped_fails_beside_what_it_measured(self):
        records = all_is_well() + [{"step": "curve", "ended": 124, "seconds": 420}]
        self.assertEqual(failing(records), ["step curve ends well"])
        self.assertEqual(verdicts(records)["160M, bf16: mean gap to FSDP2"], "PASS")

    def test_a_later_run_takes_the_place_of_an_earlier_one(self):
        better = [{"step": "kernels", "name": "rms_norm", "ratio": 0.9}]
        self.assertEqual(failing(changed("kernels", {"ratio": 0.5}, name="rms_norm") + better), [])

    def test_exits_with_1_where_something_asked_for_is_missing_or_wrong(self):
        with tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory) / "measured.jsonl"

            def run(records, asked):
                file.write_text("".join(json.dumps(r) + "\n" for r in records) + '\n{"step": "par')
                done = subprocess.run([sys.executable, TESTS / "gpu_judge.py", "--asked", asked, file], capture_output=True, text=True, check=False)
                return done.returncode, done.stdout

            only = [r for r in all_is_well() if r["step"] == "curve"]
            code, text = run(only, "curve")
            self.assertEqual(code, 0, text)
            self.assertRegex(text, r"PASS +160M, bf16: mean gap to FSDP2 +0\.100% over the last 500 of 2000 +below 0\.3%")
            self.assertRegex(text, r"NOT RUN +tests on the GPU")
            self.assertEqual(run(only, "curve,big")[0], 1)
            self.assertEqual(run(changed("curve", {"gap": 0.1}), "curve")[0], 1)


class FakeRuns(gpu.Runs):
    """Rows as the programs print them, from nothing."""

    def __init__(self, arguments, work, model, steps, micro, weights=False, std=None, zipf=False):
        self.work, self.shape, self.steps, self.micro, self.tokens, self.a = work, gpu_runs.SHAPES[model], steps, micro, work / "tokens.bin", arguments

    def planned_gib(self, settings):
        return 1000.0 if settings.get("memory.recompute") in self.a.too_large else 40.0

    def rows(self, seconds):
        return [{"step": s, "start_seconds": 9.0, "loss": 11.0 - 0.1 * s, "grad_norm": 1.0, "step_seconds": seconds, "mfu": 0.6,
                 "tokens_per_second": self.micro * self.shape["seq_len"] / seconds,
                 "memory_peak_bytes": {"rss": 100 << 30}} for s in range(self.steps)]

    def trireme(self, settings, ranks=1, trace=None):
        if settings.get("memory.offload") == "optimizer":
            raise RuntimeError("out of memory")
        if trace:
            lane = [{"ph": "M", "name": "thread_name", "tid": t, "args": {"name": n}} for t, n in ((0, "compute"), (5, "host"))]
            spans = [{"ph": "X", "tid": t, "ts": b, "dur": d} for t, b, d in ((0, 0, 10), (5, 4, 20))]
            pathlib.Path(trace).write_text(json.dumps({"traceEvents": lane + spans}))
        return self.rows(0.5)

    def logits(self, device):
        return [1.0, -2.0, 3.0 + (1e-6 if device == "cuda" else 0.0)]

    def peer(self, settings):
        return self.rows(0.6)


class FakeMemory:
    gib = 30.0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Measuring(unittest.TestCase):
    def setUp(self):
        real = gpu.Runs, gpu.PeakMemory, gpu.nvidia_smi
        gpu.Runs, gpu.PeakMemory, gpu.nvidia_smi = FakeRuns, FakeMemory, lambda field: 80 << 10
        self.addCleanup(setattr, gpu_runs, "gpu_name", gpu_runs.gpu_name)
        gpu_runs.gpu_name = lambda: "NVIDIA H200"
        self.addCleanup(lambda: [setattr(gpu, name, was) for name, was in zip(("Runs", "PeakMemory", "nvidia_smi"), real, strict=True)])

    def measured(self, action, **arguments):
        with tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory) / "measured.jsonl"
            given = types.SimpleNamespace(**{"measured": file, "trace": None, "variants": None, "part": "all", "rehearsal": False,
                                             "too_large": (), **arguments})
            with contextlib.redirect_stdout(io.StringIO()):
                action(given, pathlib.Path(directory))
            return verdicts(gpu_judge.records_of(file.read_text()))

    def test_what_gpu_py_writes_is_what_the_judge_reads(self):
        speed = self.measured(gpu.speed, model="1b", micro=4, steps=12)
        self.assertEqual(self.measured(gpu.speed, model="1b", micro=4, steps=12, too_large=("none",))["1b: Trireme, recompute none runs"], "SKIPPED")
        first = self.measured(gpu.speed, model="3b", micro=2, steps=12, part="first")
        self.assertEqual(first["3b: speed by compiled FSDP2, fastest of both"], "PASS")
        self.assertEqual(first["3b: Trireme, offload parameters runs"], "NOT RUN")
        small = self.measured(gpu.speed, model="3b", micro=2, steps=12, part="first", too_large=("none", "selective"))
        self.assertEqual(small["3b: Trireme, recompute selective runs"], "SKIPPED")
        self.assertEqual(small["3b: speed by compiled FSDP2, both with recompute block"], "PASS", "what fits takes its place")
        self.assertEqual(small["3b: MFU, fastest of ours"], "PASS")
        for model in gpu_judge.MODELS:
            self.assertEqual(self.measured(gpu.trace, model=model, micro=4)[f"{model}: trace of three steps"], "PASS")
        self.assertEqual(speed["1b: MFU, fastest of ours"], "PASS")
        self.assertEqual(speed["1b: speed by compiled FSDP2, fastest of both"], "PASS")
        self.assertEqual(speed["1b: memory by compiled FSDP2, both with recompute block"], "FAIL")
        self.assertEqual(speed["1b: Trireme, offload optimizer runs"], "FAIL")
        self.assertEqual(self.measured(gpu.curve, steps=2000)["160M, bf16: mean gap to FSDP2"], "PASS")
        self.assertEqual(self.measured(gpu.curve, steps=40)["160M, bf16: mean gap to FSDP2"], "FAIL")
        parity = self.measured(gpu.parity)
        self.assertEqual([parity[case] for case in gpu_judge.PARITY], ["PASS"] * len(gpu_judge.PARITY))
        experts = self.measured(lambda a, folder: gpu.mixture(a, folder, gpu.Runs, gpu.PeakMemory), steps=12)
        self.assertEqual([experts[case] for case in (*gpu_judge.EXPERTS, "128 experts: it trains")], ["PASS"] * 4)
        big = self.measured(gpu.big)
        self.assertEqual({word for criterion, word in big.items() if criterion.startswith("6B")}, {"PASS"})

    def test_overlap_counts_the_shorter_of_both(self):
        lanes = [{"ph": "M", "name": "thread_name", "tid": t, "args": {"name": n}}
                 for t, n in ((0, "compute"), (1, "gather"), (4, "host to device"), (5, "host"))]

        def part(*spans):
            return gpu.overlap({"traceEvents": lanes + [{"ph": "X", "tid": t, "ts": b, "dur": e - b} for t, b, e in spans]})

        self.assertEqual(part((0, 0, 10), (4, 10, 20)), 0.0)
        self.assertEqual(part((0, 0, 10), (4, 0, 40)), 1.0)
        self.assertEqual(part((0, 0, 10), (4, 0, 4), (5, 2, 5)), 1.0)
        self.assertEqual(part((0, 0, 10), (0, 20, 30), (5, 5, 25)), 0.5)
        self.assertEqual(part((1, 0, 10)), 0.0)

    def test_a_missing_number_is_an_infinite_deviation(self):
        self.assertEqual(gpu_runs.deviation([{"loss": None}], [{"loss": 1.0}], "loss"), float("inf"))

    def test_the_big_model_has_six_billion_parameters(self):
        self.assertGreaterEqual(gpu.parameters(gpu_runs.SHAPES["6b"]), gpu_judge.BIG_PARAMETERS)


if __name__ == "__main__":
    unittest.main()
