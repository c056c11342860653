#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares docs/lab/2026-11-27-h200.md with the calculated and planned values, and the kernels' names to their groups. TRIREME: the program."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(TESTS / "bench" / "step_vs_pytorch"))
sys.dont_write_bytecode = True
import gpu_expected  # noqa: E402
import gpu_judge  # noqa: E402
import gpu_trace  # noqa: E402

DOCUMENT = (TESTS.parent / "docs" / "lab" / "2026-11-27-h200.md").read_text()


class Expected(unittest.TestCase):
    def test_the_document_has_the_tables_on_paper_and_as_measured(self):
        recorded = gpu_expected.RECORDED.read_text()
        for table in (gpu_expected.table(gpu_expected.measured_of(recorded)), gpu_expected.kernel_table(recorded), gpu_expected.fp8_table()):
            self.assertIn(table, DOCUMENT, "paste what tests/bench/step_vs_pytorch/gpu_expected.py prints")

    def test_the_document_has_what_the_plan_predicts(self):
        for table in gpu_expected.plan_tables(os.environ["TRIREME"]):
            self.assertIn(table, DOCUMENT, "paste what tests/bench/step_vs_pytorch/gpu_expected.py --plan TRIREME prints")

    def test_the_expected_mfu_is_what_the_issue_asks_for_or_more(self):
        for model, least in gpu_judge.MFU["H200"].items():
            step = sum(row[3] for row in gpu_expected.parts(model))
            self.assertGreater(gpu_expected.flops_of_step(model) / step / gpu_expected.PEAK_FLOPS, least)

    def test_kernels_belong_to_groups(self):
        for name, group in (
            ("nvjet_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "products"),
            ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x64x64_4x1x1", "attention"),
            ("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64>>", "attention"),
            ("void trireme::device::cuda::rows_kernel<8, trireme::kernels::cuda::(anonymous namespace)::GatedUnit<c10::BFloat16>>", "norms, RoPE, SwiGLU"),
            ("void trireme::device::cuda::rows_kernel<8, trireme::kernels::cuda::(anonymous namespace)::PlaceGradients<float, true>>", "norms, RoPE, SwiGLU"),
            ("void trireme::kernels::cuda::(anonymous namespace)::backward_kernel<c10::BFloat16, 8, 1, false>", "norms, RoPE, SwiGLU"),
            ("void trireme::kernels::cuda::(anonymous namespace)::head_kernel<c10::BFloat16, 16>", "norms, RoPE, SwiGLU"),
            ("void trireme::kernels::cuda::(anonymous namespace)::cross_entropy_kernel<c10::BFloat16, 8>", "loss and embedding"),
            ("void trireme::kernels::cuda::(anonymous namespace)::scatter_cut_kernel<c10::BFloat16, 8>", "loss and embedding"),
            ("void trireme::device::cuda::range_kernel<4, trireme::optim::cuda::(anonymous namespace)::Update>", "AdamW and the norm"),
            ("Memcpy DtoD (Device -> Device)", "copies and fills"),
            ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "other"),
        ):
            self.assertEqual(gpu_trace.group_of(name), group, name)

    def test_what_was_measured_stands_beside_it(self):
        record = {"step": "trace", "model": "1b", "groups": {"products": 171.2, "attention": 50.0}, "step_ms": 300.0}
        text = json.dumps({"step": "trace", "ended": 0}) + "\n\n" + json.dumps(record) + "\n"
        lines = gpu_expected.table(gpu_expected.measured_of(text)).splitlines()
        products = next(line for line in lines if line.startswith("| products"))
        self.assertEqual(products.split("|")[4].strip(), "171.2")
        self.assertEqual(products.split("|")[7].strip(), "")  # no 3B result
        self.assertEqual(lines[-1].split("|")[4].strip(), "50%")

    def test_all_tables_are_filled_and_a_line_that_a_killed_step_left_loses_nothing_else(self):
        records = [{"step": f"trace{suffix}", "model": model, "groups": {"products": time}, "step_ms": 300.0}
                   for model, suffix, time in (("1b", "", 171.2), ("3b", "-3b", 222.2))]
        records += [{"step": f"speed-{model}", "name": name, "tokens_per_second": 1.0, "gib": gib, "planned_gib": plan, "start_seconds": start}
                    for model in ("1b", "3b") for name, gib, plan, start in (("Trireme, recompute selective", 33.3, 30.0, 8.8),
                                                                            ("PyTorch compiled", 44.4, None, 55.5))]
        records += [{"step": "kernels", "name": "rotate", "ratio": 0.91, "GBps": 3210.0}, {"step": "kernels", "name": "gemm/forward", "TFLOPs": 654.0}]
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write("".join(json.dumps(r) + "\n" for r in records) + '{"step": "kernels", "name": "ro')
            file.flush()
            done = subprocess.run([sys.executable, gpu_expected.__file__, file.name], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        for line in ("| products | | 174 | 171.2 | | 226 | 222.2 |",
                     "| memory, 2.5 outside of the plan, GiB | 32.5 | 33.3 | 44.4 | 32.5 | 33.3 | 44.4 |",
                     "| program's start to the end of the first step, s | 5 | 8.8 | 55.5 | 5 | 8.8 | 55.5 |",
                     "| rotate | 85% of a copy | 91%, 3.21 TB/s |", "| gemm/forward | 700 TFLOP/s | 654 |", "| cast | 85% of a copy |  |",
                     "| PyTorch compiled |  | 44.4 |  | 44.4 |", "| Trireme, recompute none |  |  |  |  |"):
            self.assertIn(line + "\n", done.stdout)

    def test_the_kernels_are_those_of_the_benchmark(self):
        source = (TESTS / "bench" / "kernels_gpu_bench.cpp").read_text()
        for one in re.split(r"\n  add\(", source)[1:]:
            for name in re.findall(r'"(\w+/?\w*)"', one.split("[", 1)[0]):
                if "memory(s" in one:
                    self.assertIn(name, gpu_expected.MOVING)
        names = set(re.findall(r'"([\w/]+)"', source))
        self.assertEqual({name for name in (*gpu_expected.MOVING, *gpu_expected.MULTIPLYING) if name not in names}, set())


if __name__ == "__main__":
    unittest.main()
