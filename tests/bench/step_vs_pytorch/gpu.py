#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trireme beside PyTorch FSDP2, eager and torch.compile, on one GPU, in one run. Its Python must have PyTorch (tests/gpu.sh
finds one).

    gpu.py speed --trireme PROGRAM --model 1b     tokens/s, MFU and peak memory: recompute none, selective and block; offload
    gpu.py curve --trireme PROGRAM                bf16 losses of a 160M model over 2,000 steps: mean gap of the last 500
    gpu.py parity --trireme PROGRAM               one GPU against the CPU, fp32 and bf16; four ranks on one GPU against one

MFU counts attention in full against 989 TFLOP/s (dense bf16 of an H100 or H200), by Trireme's rule for both programs. Peak
memory is what nvidia-smi sees, caches included."""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from compare import CLIP_NORM, EPS, HERE, LR, WEIGHT_DECAY, hf_config, write_tokens

PEAK_FLOPS = 989e12
SHAPES = {  # Llama 3.2's 1B and 3B, embeddings not tied
    "1b": {"vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
           "num_attention_heads": 32, "num_key_value_heads": 8, "seq_len": 4096},
    "3b": {"vocab_size": 128256, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28,
           "num_attention_heads": 24, "num_key_value_heads": 8, "seq_len": 4096},
    "160m": {"vocab_size": 32000, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12,
             "num_attention_heads": 12, "num_key_value_heads": 12, "seq_len": 1024},
    "small": {"vocab_size": 1000, "hidden_size": 144, "intermediate_size": 304, "num_hidden_layers": 3,
              "num_attention_heads": 6, "num_key_value_heads": 2, "seq_len": 96},
}
MODEL_KEYS = {"vocab_size": "vocab_size", "hidden_size": "hidden_size", "intermediate_size": "intermediate_size",
              "num_hidden_layers": "layers", "num_attention_heads": "heads", "num_key_value_heads": "kv_heads"}
VARIANTS = {
    "recompute none": {"memory.recompute": "none"},
    "recompute selective": {"memory.recompute": "selective"},
    "recompute block": {"memory.recompute": "block"},
    "offload optimizer": {"memory.recompute": "selective", "memory.offload": "optimizer"},
    "offload parameters": {"memory.recompute": "selective", "memory.offload": "parameters"},
    "offload activations": {"memory.recompute": "none", "memory.activation_offload": True},
}
PEERS = {"PyTorch eager": {}, "PyTorch compiled": {"compile": True},
         "PyTorch compiled, recompute block": {"compile": True, "recompute": "block"}}


class PeakMemory:
    """The most memory that nvidia-smi saw in use on the first GPU while this lived, in GiB."""

    def __enter__(self):
        self.gib, self.stopped = 0.0, threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()
        return self

    def watch(self):
        while not self.stopped.wait(0.3):
            seen = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"],
                                  capture_output=True, text=True, check=False).stdout.strip()
            if seen.isdigit():
                self.gib = max(self.gib, int(seen) / 1024)

    def __exit__(self, *_):
        self.stopped.set()
        self.thread.join()


class Runs:
    """Runs of both programs on one shape and one token file."""

    def __init__(self, arguments, work, model, steps, micro, weights=False):
        self.a, self.work, self.steps, self.micro, self.weights = arguments, work, steps, micro, weights
        self.shape, self.directory, self.tokens = SHAPES[model], work / model, work / f"{model}.bin"
        self.directory.mkdir(exist_ok=True)
        config = hf_config(self.shape)
        write_tokens(self.tokens, min(self.shape["vocab_size"], 65536), steps * micro * self.shape["seq_len"] + 1)
        if weights:
            self.run([sys.executable, HERE / "peer.py", "weights", self.directory, "--shape", json.dumps(config)])
        else:
            (self.directory / "config.json").write_text(json.dumps(config))

    def run(self, command):
        """Standard output of a command; its own last words when it fails."""
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{pathlib.Path(str(command[0])).name} ended with {done.returncode}: "
                               f"{(done.stdout + done.stderr)[-1500:]}")
        return done.stdout

    def trireme(self, settings, ranks=1):
        """The rows of metrics.jsonl."""
        with tempfile.TemporaryDirectory(dir=self.work) as output:
            everything = {
                "run.output": output, "run.overwrite": True, "data.train": str(self.tokens), "data.format": "uint16",
                "data.seq_len": self.shape["seq_len"], "data.shuffle": False, "batch.global": self.micro,
                "batch.micro": self.micro // ranks, "precision.compute": "bf16", "optimizer.lr": LR,
                "optimizer.weight_decay": WEIGHT_DECAY, "optimizer.eps": EPS, "optimizer.clip_norm": CLIP_NORM,
                "lr.schedule": "constant", "train.steps": self.steps, "device.type": "cuda", "metrics.peak_flops": PEAK_FLOPS,
                "checkpoint.at_end": False,
            }
            if self.weights:
                everything["model.from"] = str(self.directory)
            else:
                everything |= {f"model.{ours}": self.shape[theirs] for theirs, ours in MODEL_KEYS.items()}
            everything |= settings
            sections = {}
            for key, value in everything.items():
                section, name = key.split(".")
                sections.setdefault(section, []).append(f"{name} = {json.dumps(value)}")
            run_file = self.work / "run.toml"
            run_file.write_text("".join(f"[{s}]\n" + "\n".join(lines) + "\n" for s, lines in sections.items()))
            launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", ranks] if ranks > 1 else []
            self.run([*launcher, self.a.trireme, "train", run_file])
            return [json.loads(line) for line in (pathlib.Path(output) / "metrics.jsonl").read_text().splitlines()]

    def peer(self, settings):
        """The rows that peer.py prints."""
        everything = {"tokens": str(self.tokens), "seq_len": self.shape["seq_len"], "micro": self.micro, "steps": self.steps,
                      "precision": "bf16", "threads": 8, "lr": LR, "eps": EPS, "weight_decay": WEIGHT_DECAY,
                      "clip_norm": CLIP_NORM, "exact_norm": False, "device": "cuda"} | settings
        output = self.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 1,
                           HERE / "peer.py", "train", self.directory, "--settings", json.dumps(everything)])
        return [json.loads(line) for line in output.splitlines() if line.startswith("{")]

    def tokens_per_second(self, rows):
        """From the median step; the first ones warm up."""
        return self.micro * self.shape["seq_len"] / statistics.median(row["step_seconds"] for row in rows[len(rows) // 3:])


def speed(arguments, work):
    """A table: ours in every variant, then the peers; False when one did not run."""
    runs = Runs(arguments, work, arguments.model, arguments.steps, arguments.micro)
    print(f"Llama {arguments.model}, bf16, {arguments.micro} x {runs.shape['seq_len']} tokens a step, {arguments.steps} steps")
    print(f"{'':36s} {'tokens/s':>9s} {'MFU':>6s} {'peak GiB':>9s} {'run s':>6s}", flush=True)
    whole, flops_per_token = True, None
    jobs = [(f"Trireme, {name}", runs.trireme, settings) for name, settings in VARIANTS.items()
            if not arguments.variants or name in arguments.variants]
    jobs += [(name, runs.peer, settings) for name, settings in PEERS.items()]
    for name, run, settings in jobs:
        began = time.monotonic()
        try:
            with PeakMemory() as memory:
                rows = run(settings)
        except RuntimeError as error:
            print(f"{name:36s} did not run: {error}", flush=True)
            whole = False
            continue
        rate = runs.tokens_per_second(rows)
        if rows[-1].get("mfu"):
            flops_per_token = statistics.median(row["mfu"] * PEAK_FLOPS / row["tokens_per_second"] for row in rows)
        mfu = f"{rate * flops_per_token / PEAK_FLOPS:6.1%}" if flops_per_token else "     -"
        print(f"{name:36s} {rate:9.0f} {mfu} {memory.gib:9.1f} {time.monotonic() - began:6.0f}", flush=True)
    return whole


def curve(arguments, work):
    """True when the mean gap of the last quarter is below 0.3%."""
    runs = Runs(arguments, work, "160m", arguments.steps, 8, weights=True)
    ours, theirs = runs.trireme({}), runs.peer({})
    every = max(1, arguments.steps // 40)
    for a, b in list(zip(ours, theirs, strict=True))[::every]:
        print(f"step {a['step']:5d}: loss {a['loss']:.5f} {b['loss']:.5f}")
    tail = arguments.steps // 4
    gap = abs(statistics.mean(a["loss"] - b["loss"] for a, b in zip(ours[-tail:], theirs[-tail:], strict=True)))
    gap /= statistics.mean(b["loss"] for b in theirs[-tail:])
    print(f"mean gap of the last {tail} steps: {gap:.3%} (below 0.3%: {'yes' if gap < 0.003 else 'NO'})")
    return gap < 0.003


def deviation(ours, theirs, key):
    return max(abs(a[key] - b[key]) / abs(b[key]) for a, b in zip(ours, theirs, strict=True))


def parity(arguments, work):
    """True when the GPU agrees with the CPU and four ranks on it agree with one."""
    runs = Runs(arguments, work, "small", 20, 8, weights=True)
    fp32 = {"precision.compute": "fp32"}
    cases = {
        "fp32: GPU against CPU": (fp32, 1, fp32 | {"device.type": "cpu"}, 1, 1e-4),
        "bf16: GPU against CPU": ({}, 1, {"device.type": "cpu"}, 1, 2e-2),
        "fp32: recompute block against none": (fp32 | {"memory.recompute": "block"}, 1, fp32 | {"memory.recompute": "none"}, 1, 1e-6),
        "fp32: offload of parameters against none": (fp32 | {"memory.offload": "parameters"}, 1, fp32, 1, 1e-5),
        "fp32: four ranks on one GPU by MPI against one": (fp32 | {"comm.backend": "mpi"}, 4, fp32, 1, 1e-5),
        "fp32: two ranks by tensor, MPI, against one": (fp32 | {"comm.backend": "mpi", "mesh.tensor": 2}, 2, fp32, 1, 1e-5),
    }
    whole = True
    for name, (ours, our_ranks, theirs, their_ranks, tolerance) in cases.items():
        try:
            if "tensor" in name:
                ours = ours | {"batch.micro": 8}
            a, b = runs.trireme(ours, our_ranks), runs.trireme(theirs, their_ranks)
            loss, norm = deviation(a, b, "loss"), deviation(a, b, "grad_norm")
            right = loss <= tolerance and norm <= 10 * tolerance
            print(f"{name:48s} loss {loss:.1e}, norm {norm:.1e}, allowed {tolerance:.0e}: {'agree' if right else 'DIFFER'}", flush=True)
        except RuntimeError as error:
            right = False
            print(f"{name:48s} did not run: {error}", flush=True)
        whole = whole and right
    return whole


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["speed", "curve", "parity"])
    parser.add_argument("--trireme", type=pathlib.Path, required=True, help="the program")
    parser.add_argument("--model", choices=["1b", "3b", "160m", "small"], default="1b", help="of speed")
    parser.add_argument("--micro", type=int, default=4, help="sequences of a step, of speed")
    parser.add_argument("--steps", type=int, help="20 of speed, 2000 of curve")
    parser.add_argument("--variants", nargs="*", help="of speed: " + ", ".join(VARIANTS))
    arguments = parser.parse_args()
    arguments.steps = arguments.steps or (2000 if arguments.action == "curve" else 20)
    with tempfile.TemporaryDirectory(prefix="trireme-gpu-") as work:
        return 0 if {"speed": speed, "curve": curve, "parity": parity}[arguments.action](arguments, pathlib.Path(work)) else 1


if __name__ == "__main__":
    sys.exit(main())
