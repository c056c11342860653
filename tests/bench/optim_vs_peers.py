#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clip, AdamW and cast to bf16 by torch (fused) and by DeepSpeed's CPUAdam, and by Trireme's one pass: in turns, in CPU time.

    OMP_NUM_THREADS=1 python tests/bench/optim_vs_peers.py --bench build/optim_bench

A peer multiplies the gradients by the clip factor, steps, and copies the masters to bf16; Trireme's pass does all of it. 48 Mi
parameters in 2,000 tensors and in one. The best of all rounds counts, so that what else the machine does disturbs little.
Python: PyTorch, and DeepSpeed where it can be had (pip install --no-build-isolation deepspeed; DS_ACCELERATOR=cpu).
"""
import argparse
import json
import os
import subprocess
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import torch

ELEMENTS = 48 << 20


def ours(bench, tensors):
    """Seconds of Trireme's pass with fp32 gradients and a bf16 copy: the best of a few iterations."""
    said = subprocess.run([bench, f"--benchmark_filter=adamw<float>/tensors:{tensors}/copy:1/", "--benchmark_format=json"],
                          check=True, capture_output=True, text=True).stdout
    found = json.loads(said)["benchmarks"][0]
    return 30 * ELEMENTS / (found["GBps"] * 1e9)


class Peer:
    """The same streams as Trireme's: masters, gradients, two moments in fp32, a copy in bf16."""

    def __init__(self, tensors, make):
        each = ELEMENTS // tensors // 64 * 64
        self.masters = [torch.nn.Parameter(torch.full((each,), 0.5)) for _ in range(tensors)]
        for master in self.masters:
            master.grad = torch.full_like(master, 1e-3)
        self.copies = [torch.zeros(each, dtype=torch.bfloat16) for _ in range(tensors)]
        self.optimizer = make(self.masters)
        self.best = float("inf")
        self.round()
        self.best = float("inf")

    def round(self):
        begin = time.process_time()
        with torch.no_grad():
            torch._foreach_mul_([master.grad for master in self.masters], 0.999)
            self.optimizer.step()
            torch._foreach_copy_(self.copies, self.masters)
        self.best = min(self.best, (time.process_time() - begin) / torch.get_num_threads())


def fused(masters):
    return torch.optim.AdamW(masters, lr=1e-4, weight_decay=0.1, fused=True)


def deepspeed(masters):
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    return DeepSpeedCPUAdam(masters, lr=1e-4, weight_decay=0.1, adamw_mode=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True, help="the program optim_bench")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    for tensors in (1, 2000):
        peers = {}
        for name, make in (("torch fused AdamW", fused), ("DeepSpeed CPUAdam", deepspeed)):
            try:
                peers[name] = Peer(tensors, make)
            except Exception as error:  # not installed, or its extension does not build here
                print(f"{name}: left out: {str(error).splitlines()[0]}")
        best = float("inf")
        for _ in range(arguments.rounds):
            best = min(best, ours(arguments.bench, tensors))
            for peer in peers.values():
                for _ in range(3):
                    peer.round()
        print(f"{tensors} tensors: Trireme {1e3 * best:.1f} ms, {30 * ELEMENTS / best / 1e9:.1f} GB/s")
        for name, peer in peers.items():
            print(f"  {name}: {1e3 * peer.best:.1f} ms, {peer.best / best:.2f} times as long")


if __name__ == "__main__":
    main()
