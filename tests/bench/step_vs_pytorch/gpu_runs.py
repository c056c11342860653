# SPDX-License-Identifier: Apache-2.0
"""Runs of Trireme and of its peer, PyTorch FSDP2, on one shape and one token file, as gpu.py compares them on a GPU."""
import array
import functools
import json
import os
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from compare import CLIP_NORM, EPS, HERE, LR, WEIGHT_DECAY, hf_config
from gpu_clocks import Sampler

PEAK_FLOPS = 989e12
SHAPES = {  # Llama 3.2's 1B and 3B, embeddings not tied
    "1b": {"vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
           "num_attention_heads": 32, "num_key_value_heads": 8, "seq_len": 4096},
    "3b": {"vocab_size": 128256, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28,
           "num_attention_heads": 24, "num_key_value_heads": 8, "seq_len": 4096},
    "6b": {"vocab_size": 65536, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 31,
           "num_attention_heads": 32, "num_key_value_heads": 8, "seq_len": 4096},
    # With EXPERTS: 2.6 billion parameters, of which a token uses 0.4.
    "mixture": {"vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 768, "num_hidden_layers": 4,
                "num_attention_heads": 32, "num_key_value_heads": 4, "seq_len": 4096},
    "160m": {"vocab_size": 32000, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12,
             "num_attention_heads": 12, "num_key_value_heads": 12, "seq_len": 1024},
    "small": {"vocab_size": 1000, "hidden_size": 144, "intermediate_size": 304, "num_hidden_layers": 3,
              "num_attention_heads": 6, "num_key_value_heads": 2, "seq_len": 96},
}
TINY = {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "seq_len": 64}
MODEL_KEYS = {"vocab_size": "vocab_size", "hidden_size": "hidden_size", "intermediate_size": "intermediate_size",
              "num_hidden_layers": "layers", "num_attention_heads": "heads", "num_key_value_heads": "kv_heads"}


def deviation(ours, theirs, key):
    """The largest relative difference of a step; infinite where a number is missing."""
    if any(row[key] is None for row in ours + theirs):
        return float("inf")
    return max(abs(a[key] - b[key]) / abs(b[key]) for a, b in zip(ours, theirs, strict=True))


def record(arguments, step, **figures):
    """Appends figures for tests/gpu_judge.py, with the GPU's name, by which it judges them."""
    if arguments.measured:
        with open(arguments.measured, "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "gpu": gpu_name()} | figures) + "\n")


def agree(arguments, step, case, run, ours, theirs, allowed):
    """Whether the losses of run(*ours) and run(*theirs) differ by `allowed` at most, and the norms by ten times that: recorded and printed."""
    try:
        a, b = run(*ours), run(*theirs)
    except RuntimeError as error:
        record(arguments, step, case=case, error=str(error))
        print(f"{case:52s} did not run: {error}", flush=True)
        return False
    loss, norm = deviation(a, b, "loss"), deviation(a, b, "grad_norm")
    right = loss <= allowed and norm <= 10 * allowed
    record(arguments, step, case=case, loss=loss, norm=norm, allowed=allowed)
    print(f"{case:52s} loss {loss:.1e}, norm {norm:.1e}, allowed {allowed:.0e}: {'agree' if right else 'DIFFER'}", flush=True)
    return right


def asked(field):
    """A field of nvidia-smi for the first GPU; empty if it prints nothing or is missing."""
    try:
        return subprocess.run(["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits", "-i", "0"],
                              capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


@functools.cache
def gpu_name():
    """Name of the first GPU; empty if nvidia-smi does not report it."""
    return asked("name")


def nvidia_smi(field):
    """A whole number that nvidia-smi knows of the first GPU; None without one."""
    seen = asked(field)
    return int(seen) if seen.isdigit() else None


def capability():
    """The compute capability of the first GPU, such as 9.0; 0 if nvidia-smi does not report it."""
    seen = asked("compute_cap")
    return float(seen) if re.fullmatch(r"\d+\.\d", seen) else 0.0


def write_tokens(path, vocab_size, count, zipf=False):
    """Tokens that follow a noisy rule, so that there is something to learn; 16 million in seconds. zipf: what the rule does not say is drawn
    as words are, with a probability of 1 / (rank + 10), so that rules are learned one after the other. Where all are as frequent, they are
    learned at once, after hundreds of steps in which rounding decides when."""
    import numpy  # of the Python with PyTorch
    draw = numpy.random.default_rng(1)
    if zipf:
        ranks = numpy.cumsum(1 / (numpy.arange(vocab_size) + 10.0))
        tokens = numpy.searchsorted(ranks / ranks[-1], draw.random(count), side="right")
    else:
        tokens = draw.integers(0, vocab_size, count)
    follows = draw.random(count) < 0.7
    follows[0] = False
    at, starts = numpy.arange(count), numpy.flatnonzero(~follows)
    since = at - starts[numpy.searchsorted(starts, at, side="right") - 1]  # tokens since one was drawn
    for distance in range(1, int(since.max()) + 1):
        here = numpy.flatnonzero(since == distance)
        tokens[here] = (3 * tokens[here - 1] + 7) % vocab_size
    tokens.astype(token_type(vocab_size)).tofile(path)


def token_type(vocab_size):
    return "uint16" if vocab_size <= 65536 else "uint32"


def started(rows, began):
    """The rows of a run, the first with the seconds from the start of the program to the end of its first step."""
    return [row | ({"start_seconds": row["time"] - began} if not i else {}) for i, row in enumerate(rows)]


class PeakMemory(Sampler):
    """The most memory that nvidia-smi saw in use on the first GPU while this lived, in GiB."""
    fields, milliseconds = "memory.used", 300

    def __init__(self):
        self.gib = 0.0

    def line(self, line):
        if line.strip().isdigit():
            self.gib = max(self.gib, int(line) / 1024)


class Runs:
    """Runs of both programs on one shape and one token file."""

    def __init__(self, arguments, work, model, steps, micro, weights=False, std=None, zipf=False):
        """weights: written by peer.py, for both; std: as a training begins. zipf: of `write_tokens`."""
        self.a, self.work, self.steps, self.micro, self.weights = arguments, work, steps, micro, weights
        self.shape, self.directory, self.tokens = TINY if arguments.rehearsal else SHAPES[model], work / model, work / f"{model}.bin"
        self.directory.mkdir(exist_ok=True)
        config = hf_config(self.shape)
        write_tokens(self.tokens, self.shape["vocab_size"], steps * micro * self.shape["seq_len"] + 1, zipf)
        if weights:
            self.run([sys.executable, HERE / "peer.py", "weights", self.directory, "--shape", json.dumps(config),
                      *(["--std", std] if std is not None else [])])
        else:
            (self.directory / "config.json").write_text(json.dumps(config))

    def run(self, command, **environment):
        """Standard output of a command; its own last words when it fails or takes too long."""
        try:
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                                  env=os.environ | environment, timeout=self.a.limit)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"{pathlib.Path(str(command[0])).name} was stopped after {self.a.limit} s") from error
        if done.returncode != 0:
            raise RuntimeError(f"{pathlib.Path(str(command[0])).name} ended with {done.returncode}: "
                               f"{(done.stdout + done.stderr)[-1500:]}")
        return done.stdout

    def run_file(self, settings, output, ranks=1):
        """A run file with these settings."""
        everything = {
            "run.output": str(output), "run.overwrite": True, "data.train": str(self.tokens),
            "data.format": token_type(self.shape["vocab_size"]),
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
        everything |= {key: value for key, value in settings.items() if key != "environment"}
        sections = {}
        for key, value in everything.items():
            section, name = key.split(".")
            sections.setdefault(section, []).append(f"{name} = {json.dumps(value)}")
        run_file = pathlib.Path(output).with_suffix(".toml")  # runs may go on side by side
        run_file.write_text("".join(f"[{s}]\n" + "\n".join(lines) + "\n" for s, lines in sections.items()))
        return run_file

    def plan(self, settings):
        """Output of `trireme plan` for a run's memory."""
        return self.run([self.a.trireme, "plan", self.run_file(settings, self.work / "planned"), "--ranks", 1, "--show", "memory"])

    def planned_gib(self, settings):
        """The GPU's memory that `trireme plan` predicts for a run."""
        text = self.plan(settings)
        total = re.search(r"^total +([0-9.]+) ([KMGT]i)?B", text, re.MULTILINE)
        if not total:
            raise RuntimeError(f"trireme plan printed no total: {text[-500:]}")
        return float(total[1]) * 1024.0 ** ("KMGT".index(total[2][0]) - 2 if total[2] else -3)

    def trireme(self, settings, ranks=1, trace=None):
        """The rows of metrics.jsonl, the first with its `start_seconds`. trace: a file to keep the trace of a traced step in."""
        with tempfile.TemporaryDirectory(dir=self.work) as output:
            run_file = self.run_file(settings, output, ranks)
            launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", ranks] if ranks > 1 else []
            began = time.time()
            self.run([*launcher, self.a.trireme, "train", run_file], **settings.get("environment", {}))
            if trace:
                shutil.copyfile(pathlib.Path(output) / "trace-rank0.json", trace)
            rows = [json.loads(line) for line in (pathlib.Path(output) / "metrics.jsonl").read_text().splitlines()]
            return started([row for row in rows if "loss" in row], began)  # the others are evaluations

    def logits(self, device):
        """What generate thinks of the first new token, in fp32, one number for each id."""
        file = self.work / f"logits-{device}.bin"
        self.run([self.a.trireme, "generate", self.directory, "--tokenizer", "bytes", "--prompt", "In the beginning",
                  "--tokens", 1, "--device", device, "--logits", file])
        values = array.array("f")
        values.frombytes(file.read_bytes())
        return values

    def peer(self, settings):
        """The rows that peer.py prints. Started without a launcher: the one rank's rendezvous is this machine's loopback."""
        everything = {"tokens": str(self.tokens), "seq_len": self.shape["seq_len"], "micro": self.micro, "steps": self.steps,
                      "precision": "bf16", "threads": 8, "lr": LR, "eps": EPS, "weight_decay": WEIGHT_DECAY,
                      "clip_norm": CLIP_NORM, "exact_norm": False, "device": "cuda",
                      "token_type": token_type(self.shape["vocab_size"])} | settings
        if self.a.rehearsal:
            everything |= {"device": "cpu", "compile": False, "threads": 1}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        began = time.time()
        output = self.run([sys.executable, HERE / "peer.py", "train", self.directory, "--settings", json.dumps(everything)],
                          RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        return started([json.loads(line) for line in output.splitlines() if line.startswith("{")], began)

    def tokens_per_second(self, rows):
        """From the median step; the first ones warm up."""
        return self.micro * self.shape["seq_len"] / statistics.median(row["step_seconds"] for row in rows[len(rows) // 3:])
