#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trireme beside PyTorch FSDP2: the same model, weights, data and ranks, on this machine.

    compare.py --trireme PROGRAM                  tokens per second of both, as a ratio: paired runs, medians
    compare.py --trireme PROGRAM --parity         losses and gradient norms of 10 fp32 steps, compared

Speed: hidden 512, intermediate 1376, 8 layers, 8 heads, 4 key and value heads, vocabulary 32,000, sequence 512; 2 ranks
of 1 thread, 2 sequences each a step. The peer is PyTorch's fully_shard over gloo with fused AdamW; its own tokens per
second and the machine's GEMM rates are printed, so that a weak peer shows: libtorch's, and those of `trireme doctor`.
Runs alternate, so that a slow moment of a shared machine strikes both. The share of the product rate is a rank's FLOP/s
in products (6 a weight and token but for the embedding, and attention's, causal) over the best rate of its precision,
which one process beside nothing measures anew before every run, because a machine's clock drifts; the median of shares.

PyTorch 2.11 goes into a virtual environment in ${TRIREME_CACHE:-~/.cache/trireme}, made at the first run by pip with
whatever index it is configured for (a CPU build is enough)."""
import argparse
import json
import os
import pathlib
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import venv

HERE = pathlib.Path(__file__).resolve().parent
TORCH = "2.11.0"
SHAPES = {
    "bench": {"vocab_size": 32000, "hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 8,
              "num_attention_heads": 8, "num_key_value_heads": 4, "seq_len": 512},
    "quickstart": {"vocab_size": 257, "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 5,
                   "num_attention_heads": 4, "num_key_value_heads": 2, "seq_len": 256},  # with --micro 4
    "small": {"vocab_size": 1024, "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4,
              "num_attention_heads": 4, "num_key_value_heads": 2, "seq_len": 64},
}
LR, EPS, WEIGHT_DECAY, CLIP_NORM = 3e-4, 1e-6, 0.1, 1.0  # eps: suppresses steps by gradients that are only rounding
LOSS_TOLERANCE, NORM_TOLERANCE = 1e-6, 1e-5


def peer_python():
    """The interpreter of an environment with PyTorch; made when it is not there yet."""
    cache = pathlib.Path(os.environ.get("TRIREME_CACHE", pathlib.Path.home() / ".cache" / "trireme"))
    home = cache / f"peer-torch-{TORCH}"
    python = home / "bin" / "python"
    ready = home / "ready"
    if not ready.exists():
        print(f"making {home} with PyTorch {TORCH}: some minutes, once", flush=True)
        venv.create(home, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", f"torch=={TORCH}", "numpy", "safetensors"], check=True)
        ready.touch()
    return python


def product_flops(shape):
    """FLOPs of a training step's matrix products, for a token: forward and backward, without recomputation."""
    hidden, head = shape["hidden_size"], shape["hidden_size"] // shape["num_attention_heads"]
    of_a_layer = hidden * (2 * hidden + 2 * shape["num_key_value_heads"] * head + 3 * shape["intermediate_size"])
    weights = shape["num_hidden_layers"] * of_a_layer + shape["vocab_size"] * hidden
    return 6 * weights + 6 * shape["num_hidden_layers"] * shape["seq_len"] * hidden


def hf_config(shape):
    """config.json of the shape, as Hugging Face writes it."""
    model = {key: value for key, value in shape.items() if key != "seq_len"}
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "torch_dtype": "float32",
            "head_dim": shape["hidden_size"] // shape["num_attention_heads"], "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "max_position_embeddings": 4096, "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, **model}


def write_tokens(path, vocab_size, count):
    """uint16 tokens that follow a noisy rule, so that there is something to learn."""
    draw, token = random.Random(1), 1
    with open(path, "wb") as file:
        for _ in range(count):
            token = (3 * token + 7) % vocab_size if draw.random() < 0.7 else draw.randrange(vocab_size)
            file.write(token.to_bytes(2, "little"))


class Comparison:
    """One shape, its weights and its data, for both programs."""

    def __init__(self, arguments, work):
        self.a, self.work, self.python = arguments, work, peer_python()
        self.shape = SHAPES[arguments.shape]
        self.weights, self.tokens = work / "weights", work / "tokens.bin"
        self.environment = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads), OMPI_ALLOW_RUN_AS_ROOT="1",
                                OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        sequences = arguments.ranks * arguments.micro * arguments.steps
        write_tokens(self.tokens, self.shape["vocab_size"], sequences * self.shape["seq_len"] + 1)
        self.run([self.python, HERE / "peer.py", "weights", self.weights, "--shape", json.dumps(hf_config(self.shape))])

    def run(self, command):
        """Standard output of a command; its own words when it fails."""
        done = subprocess.run([str(word) for word in command], env=self.environment, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def trireme(self, precision):
        """The rows of metrics.jsonl."""
        with tempfile.TemporaryDirectory(dir=self.work) as output:
            settings = {
                "run.output": output, "run.overwrite": True, "model.from": str(self.weights),
                "data.train": str(self.tokens), "data.format": "uint16", "data.seq_len": self.shape["seq_len"],
                "data.shuffle": False, "batch.global": self.a.micro * self.a.ranks, "batch.micro": self.a.micro,
                "precision.compute": precision, "optimizer.lr": LR, "optimizer.weight_decay": WEIGHT_DECAY,
                "optimizer.eps": EPS,
                "optimizer.clip_norm": CLIP_NORM, "lr.schedule": "constant", "train.steps": self.a.steps,
                "device.threads": self.a.threads,
            }
            run_file = self.work / "run.toml"
            sections = {}
            for key, value in settings.items():
                section, name = key.split(".")
                sections.setdefault(section, []).append(f"{name} = {json.dumps(value)}")
            run_file.write_text("".join(f"[{s}]\n" + "\n".join(lines) + "\n" for s, lines in sections.items()))
            self.run(["mpirun", "--bind-to", "none", "--oversubscribe", "-n", self.a.ranks, self.a.trireme, "train", run_file])
            return [json.loads(line) for line in (pathlib.Path(output) / "metrics.jsonl").read_text().splitlines()]

    def peer(self, precision):
        """The rows that peer.py prints."""
        settings = {"tokens": str(self.tokens), "seq_len": self.shape["seq_len"], "micro": self.a.micro, "steps": self.a.steps,
                    "precision": precision, "threads": self.a.threads, "lr": LR, "eps": EPS, "weight_decay": WEIGHT_DECAY,
                    "clip_norm": CLIP_NORM, "exact_norm": self.a.parity}
        output = self.run([self.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", self.a.ranks,
                           HERE / "peer.py", "train", self.weights, "--settings", json.dumps(settings)])
        return [json.loads(line) for line in output.splitlines() if line.startswith("{")]

    def tokens_per_second(self, rows):
        """From the median step; the first ones warm up."""
        seconds = statistics.median(row["step_seconds"] for row in rows[2:])
        return self.a.ranks * self.a.micro * self.shape["seq_len"] / seconds

    def rates(self, precision):
        """GFLOP/s of one thread, by who multiplies."""
        peer = json.loads(self.run([self.python, HERE / "peer.py", "gemm", "--precision", precision]))
        fp32, bf16 = re.search(r"(\d+) GFLOP/s in fp32, (\d+) in bf16", self.run([self.a.trireme, "doctor"])).groups()
        return {**peer, "doctor": int(fp32 if precision == "fp32" else bf16)}

    def speed(self, precision):
        ours, theirs, best = [], [], []
        for repeat in range(self.a.repeats):
            rates = self.rates(precision)
            best.append(max(rates.values()))
            ours.append(self.tokens_per_second(self.trireme(precision)))
            theirs.append(self.tokens_per_second(self.peer(precision)))
            print(f"{precision} GFLOP/s of one thread: " + "; ".join(f"{name} {rate}" for name, rate in rates.items()), flush=True)
            print(f"{precision} run {repeat + 1}: Trireme {ours[-1]:.0f} tokens/s, PyTorch FSDP2 {theirs[-1]:.0f} tokens/s, "
                  f"ratio {ours[-1] / theirs[-1]:.2f}", flush=True)
        ratio = statistics.median(a / b for a, b in zip(ours, theirs))
        print(f"{precision}: Trireme {statistics.median(ours):.0f} tokens/s, PyTorch FSDP2 {statistics.median(theirs):.0f} tokens/s, "
              f"median ratio {ratio:.2f}", flush=True)
        if self.a.threads == 1:
            flops = product_flops(self.shape) / self.a.ranks / 1e9
            shares = [statistics.median(a * flops / b for a, b in zip(rows, best)) for rows in (ours, theirs)]
            print(f"{precision}: {statistics.median(ours) * flops:.0f} GFLOP/s of a rank in products, {shares[0]:.1%} of the best "
                  f"product rate ({statistics.median(best):.0f}); PyTorch FSDP2 {statistics.median(theirs) * flops:.0f}, "
                  f"{shares[1]:.1%}", flush=True)

    def parity(self):
        """True when both curves agree."""
        ours, theirs = self.trireme("fp32"), self.peer("fp32")
        worst = {"loss": 0.0, "grad_norm": 0.0}
        for a, b in zip(ours, theirs, strict=True):
            print(f"step {a['step']}: loss {a['loss']:.9f} {b['loss']:.9f}  norm {a['grad_norm']:.7f} {b['grad_norm']:.7f}")
            for key in worst:
                worst[key] = max(worst[key], abs(a[key] - b[key]) / abs(b[key]))
        agrees = worst["loss"] <= LOSS_TOLERANCE and worst["grad_norm"] <= NORM_TOLERANCE
        print(f"largest deviations: losses {worst['loss']:.1e} (at most {LOSS_TOLERANCE:.0e}), "
              f"gradient norms {worst['grad_norm']:.1e} (at most {NORM_TOLERANCE:.0e}): {'agree' if agrees else 'DIFFER'}")
        return agrees


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", type=pathlib.Path, required=True, help="the program")
    parser.add_argument("--parity", action="store_true", help="compare losses instead of speed")
    parser.add_argument("--shape", choices=SHAPES, default="bench")
    parser.add_argument("--precision", nargs="+", choices=["fp32", "bf16"], default=["fp32", "bf16"])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of a rank")
    parser.add_argument("--micro", type=int, default=2, help="sequences of a rank in a step")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trireme-compare-") as work:
        comparison = Comparison(arguments, pathlib.Path(work))
        if arguments.parity:
            return 0 if comparison.parity() else 1
        print(f"{cpu_name()}, {os.cpu_count()} cores", flush=True)
        for precision in arguments.precision:
            comparison.speed(precision)
    return 0


if __name__ == "__main__":
    sys.exit(main())
