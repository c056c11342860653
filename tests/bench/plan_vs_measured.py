#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How well `trireme plan` predicts this machine: measures it once for every number of ranks (`trireme doctor --measure`),
then trains twelve small runs that it was not measured with, and prints predicted and measured step times.

    python3 tests/bench/plan_vs_measured.py build/trireme [--steps 20] [--keep DIR]

About five minutes on two cores. What else runs on the machine is in the figures: leave it alone meanwhile. MPIEXEC (default
mpirun) and MPIEXEC_FLAGS as in the tests; OMP_NUM_THREADS is 1.
"""
import argparse
import array
import os
import pathlib
import random
import re
import shlex
import statistics
import subprocess
import tempfile

LLAMA = {"vocab_size": 2048, "layers": 6, "hidden_size": 256, "intermediate_size": 704, "heads": 4, "kv_heads": 2}
# Name, ranks, what differs: meshes, policies, sizes, recompute, offload, accumulation.
RUNS = [
    ("base", 1, {}),
    ("wide", 1, {"model.hidden_size": 512, "model.intermediate_size": 1376, "model.heads": 8, "model.layers": 4}),
    ("long", 1, {"data.seq_len": 1024, "batch.micro": 1, "batch.global": 1, "model.layers": 4}),
    ("vocabulary", 1, {"model.vocab_size": 16384, "model.layers": 3}),
    ("recompute", 1, {"memory.recompute": "block"}),
    ("offload", 1, {"memory.offload": "optimizer"}),
    ("shard", 2, {}),
    ("accumulation", 2, {"batch.global": 16}),
    ("deferred", 2, {"batch.global": 16, "sync.policy": "deferred", "sync.reshard_after_forward": False}),
    ("replicate", 2, {"mesh.replicate": 2, "mesh.shard": 1}),
    ("tensor", 2, {"mesh.tensor": 2, "mesh.shard": 1}),
    ("parameters", 2, {"memory.offload": "parameters", "model.hidden_size": 384, "model.intermediate_size": 1024}),
]


def toml(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


def run_file(changes, steps):
    keys = {f"model.{key}": value for key, value in LLAMA.items()}
    keys |= {"data.train": "tokens.bin", "data.format": "uint16", "data.seq_len": 256, "batch.micro": 2, "batch.global": 4}
    keys |= {"precision.compute": "fp32", "memory.recompute": "none", "train.steps": steps, "device.type": "cpu"}
    keys |= {"checkpoint.at_end": False, "run.output": "out", "run.overwrite": True}
    keys |= changes
    sections = {}
    for key, value in keys.items():
        section, name = key.split(".")
        sections.setdefault(section, []).append(f"{name} = {toml(value)}")
    return "".join(f"[{section}]\n" + "\n".join(lines) + "\n" for section, lines in sections.items())


def call(program, ranks, arguments, folder):
    launcher = [os.environ.get("MPIEXEC", "mpirun"), *shlex.split(os.environ.get("MPIEXEC_FLAGS", "--bind-to none"))]
    command = [*launcher, "-n", str(ranks), program, *arguments] if ranks else [program, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def seconds(text):
    number, unit = text.split()
    return float(number) * {"s": 1, "ms": 1e-3}[unit]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--keep", help="write runs and machine files here instead of to a temporary directory")
    arguments = parser.parse_args()
    program = str(arguments.program.resolve())
    folder = pathlib.Path(arguments.keep or tempfile.mkdtemp(prefix="plan-vs-measured."))
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(1)
    (folder / "tokens.bin").write_bytes(array.array("H", (draw.randrange(2048) for _ in range(400_000))).tobytes())
    for ranks in (1, 2):
        if not (folder / f"local-{ranks}.toml").exists():
            call(program, ranks, ["doctor", "--measure", "-o", f"local-{ranks}.toml"], folder)
    errors = []
    print(f"{'run':14}{'ranks':>6}{'predicted':>12}{'measured':>12}{'error':>9}")
    for name, ranks, changes in RUNS:
        (folder / f"{name}.toml").write_text(run_file({**changes, "run.output": name}, arguments.steps))
        call(program, ranks, ["train", f"{name}.toml"], folder)
        text = call(program, 0, ["plan", "--compare", name, "--machine", f"local-{ranks}.toml"], folder)
        found = re.search(r"^step, median of \d+ +([\d.]+ m?s) +([\d.]+ m?s) ", text, re.MULTILINE)
        predicted, measured = seconds(found[1]), seconds(found[2])
        errors.append(predicted / measured - 1)
        print(f"{name:14}{ranks:6}{1e3 * predicted:9.1f} ms{1e3 * measured:9.1f} ms{100 * errors[-1]:+8.1f}%", flush=True)
    sizes = [abs(error) for error in errors]
    print(f"{len(errors)} runs: median error {100 * statistics.median(sizes):.1f}%, largest {100 * max(sizes):.1f}%")


if __name__ == "__main__":
    main()
