#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds docs/gpus.md to what is expected on paper and planned, and the kernels' names to their groups. TRIREME: the program."""
import json
import os
import pathlib
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(TESTS / "bench" / "step_vs_pytorch"))
sys.dont_write_bytecode = True
import gpu_expected  # noqa: E402

DOCUMENT = (TESTS.parent / "docs" / "gpus.md").read_text()


class Expected(unittest.TestCase):
    def test_the_document_has_the_table_on_paper(self):
        self.assertIn(gpu_expected.table({}), DOCUMENT, "paste what tests/bench/step_vs_pytorch/gpu_expected.py prints")

    def test_the_document_has_what_the_plan_predicts(self):
        self.assertIn(gpu_expected.plan_table(os.environ["TRIREME"]), DOCUMENT,
                      "paste what tests/bench/step_vs_pytorch/gpu_expected.py --plan TRIREME prints")

    def test_the_expected_mfu_is_what_the_issue_asks_for_or_more(self):
        for model, least in (("1b", 0.55), ("3b", 0.58)):
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
            ("void trireme::kernels::cuda::(anonymous namespace)::cross_entropy_kernel<c10::BFloat16, 8>", "loss and embedding"),
            ("void trireme::kernels::cuda::(anonymous namespace)::scatter_cut_kernel<c10::BFloat16, 8>", "loss and embedding"),
            ("void trireme::device::cuda::range_kernel<4, trireme::optim::cuda::(anonymous namespace)::Update>", "AdamW and the norm"),
            ("Memcpy DtoD (Device -> Device)", "copies and fills"),
            ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "other"),
        ):
            self.assertEqual(gpu_expected.group_of(name), group, name)

    def test_what_was_measured_stands_beside_it(self):
        record = {"step": "trace", "model": "1b", "groups": {"products": 171.2, "attention": 50.0}, "step_ms": 300.0}
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write(json.dumps({"step": "trace", "ended": 0}) + "\n\n" + json.dumps(record) + "\n")
            file.flush()
            lines = gpu_expected.table(gpu_expected.measured_of(file.name)).splitlines()
        products = next(line for line in lines if line.startswith("| products"))
        self.assertEqual(products.split("|")[4].strip(), "171.2")
        self.assertEqual(products.split("|")[7].strip(), "")  # nothing of 3B
        self.assertEqual(lines[-1].split("|")[4].strip(), "50%")


if __name__ == "__main__":
    unittest.main()
