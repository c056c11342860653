#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether `trireme plan` counts memory and bytes as a run does: trains random small runs on CPUs (models, meshes, policies, recompute,
offload, accumulation), compares each with `trireme plan --compare`, and prints a table of the largest errors.

    python3 tests/bench/memory_vs_planned.py build/trireme [--runs 20] [--seed 1] [--ranks 8] [--keep DIR]

Exit code 1: a category of memory is more than 1% off, or bytes differ. What depends on the data is left out: bytes
to experts on other ranks, and activations of tokens that they send. MPIEXEC
(default mpirun) and MPIEXEC_FLAGS as in the tests; OMP_NUM_THREADS is 1.
"""
import argparse
import array
import os
import pathlib
import random
import re
import shlex
import subprocess
import tempfile

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
FAMILIES = ["llama", "llama", "llama", "qwen3", "gemma3", "olmo2", "gpt2", "qwen3_moe", "mixtral"]


def toml(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


def written(keys):
    sections = {}
    for key, value in keys.items():
        section, name = key.split(".")
        sections.setdefault(section, []).append(f"{name} = {toml(value)}")
    return "".join(f"[{section}]\n" + "\n".join(lines) + "\n" for section, lines in sections.items())


def drawn_model(draw, most_layers):
    family = draw.choice(FAMILIES)
    heads = draw.choice([4, 8])
    keys = {
        "model.architecture": family,
        "model.vocab_size": draw.choice([1000, 1024, 1531]),
        "model.hidden_size": heads * draw.choice([16, 32]),
        "model.intermediate_size": draw.choice([96, 160, 256]),
        "model.layers": draw.randint(2, most_layers),
        "model.heads": heads,
    }
    if family == "gpt2":
        keys["model.positions"] = 256
    else:
        keys["model.kv_heads"] = draw.choice([heads, heads // 2, 2])
        keys["model.tie_embeddings"] = draw.random() < 0.3
    if family in ("qwen3_moe", "mixtral"):
        keys |= {"model.experts": 8, "model.experts_per_token": 2}
    return keys


def drawn_run(draw, ranks):
    """One random run file and its ranks; may be one that `plan` refuses."""
    mesh = dict.fromkeys(["replicate", "shard", "tensor", "context", "pipeline"], 1)
    left = draw.choice([n for n in (1, 2, 3, 4, 6, 8) if n <= ranks])
    count = left
    while left > 1:
        factor = 3 if left % 3 == 0 else 2
        mesh[draw.choice(list(mesh))] *= factor
        left //= factor
    keys = drawn_model(draw, 6) | {f"mesh.{axis}": size for axis, size in mesh.items()}
    experts = "model.experts" in keys
    if experts and draw.random() < 0.6:
        keys["mesh.expert"] = draw.choice([2, 4])
    micro, accumulation = draw.choice([1, 2, 3]), draw.choice([1, 2, 4])
    if mesh["pipeline"] > 1:
        keys["pipeline.schedule"] = draw.choice(["gpipe", "1f1b", "interleaved", "zb_h1", "zbv", "dualpipev"])
        accumulation = mesh["pipeline"] * draw.choice([2, 3])
    if mesh["context"] > 1:
        keys["context.method"] = draw.choice(["gather", "heads"])
    keys |= {
        "batch.micro": micro,
        "batch.global": micro * accumulation * mesh["replicate"] * mesh["shard"],
        "data.train": "tokens.bin",
        "data.format": "uint16",
        "data.seq_len": draw.choice([48, 96, 192]),
        "sync.policy": draw.choice(["immediate", "deferred", "immediate_all"]),
        "sync.reshard_after_forward": draw.choice([True, False]),
        "sync.reshard_after_backward": draw.choice([True, True, False]),
        "precision.compute": draw.choice(["fp32", "bf16"]),
        "precision.reduce": draw.choice(["fp32", "bf16", "bf16_wire"]),
        "memory.recompute": draw.choice(["none", "selective", "block"]),
        "memory.recompute_every": draw.choice([1, 1, 2]),
        "memory.activation_offload": draw.random() < 0.3,
        "memory.activation_offload_min_bytes": draw.choice([4096, 65536]),
        "memory.offload": draw.choice(["none", "none", "optimizer", "parameters"]),
        "memory.offload_fraction": draw.choice([1.0, 0.5]),
        "loss.chunk_tokens": draw.choice([0, 0, 50]),
        "checkpoint.every": draw.choice([0, 2]),
        "checkpoint.at_end": draw.random() < 0.5,
        "checkpoint.async": draw.random() < 0.6,
        "train.steps": 3,
        "run.output": "out",
        "run.overwrite": True,
        "device.type": "cpu",
    }
    return keys, count


def launch(command, folder):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def bytes_of(text):
    number, unit = text.split()
    return float(number) * UNITS[unit]


def errors_of(text):
    """Of `plan --compare`: the largest error of a category as (percent, its line), lines of bytes that differ, and what was not predicted."""
    largest, moved, beside, measured = (0.0, ""), [], 0.0, 0.0
    for line in text.splitlines():
        columns = re.split(r"  +", line.strip())
        if columns[0].startswith("device not predicted"):
            beside = bytes_of(columns[1])
        elif columns[0].startswith(("device", "host")) and len(columns) == 4:
            if columns[0] == "device sum of these peaks":
                measured = bytes_of(columns[2])
            if columns[3] != "equal" and "depends on" not in columns[3]:
                off = float(columns[3].rstrip("%"))
                largest = max(largest, (abs(off), line.strip()))
        elif columns[0].startswith(("device", "host")) and len(columns) == 3:  # nothing was measured where bytes are predicted
            largest = (100.0, line.strip()) if bytes_of(columns[1]) else largest
        elif len(columns) == 4 and columns[1].isdigit() and columns[3] != "equal" and "depends on" not in columns[3]:
            moved.append(line.strip())
    return largest, moved, beside, measured


def described(keys, count):
    axes = "x".join(str(keys[f"mesh.{axis}"]) for axis in ("replicate", "shard", "tensor", "context", "pipeline"))
    parts = [keys["model.architecture"], f"{count} ranks {axes}", keys["sync.policy"], keys["precision.compute"], f"recompute {keys['memory.recompute']}"]
    for key, name in (("mesh.expert", "experts over"), ("pipeline.schedule", ""), ("context.method", "")):
        if key in keys:
            parts.append(f"{name} {keys[key]}".strip())
    if keys["memory.offload"] != "none":
        parts.append(f"offload {keys['memory.offload']} {keys['memory.offload_fraction']}")
    if keys["memory.activation_offload"]:
        parts.append("activations offloaded")
    return ", ".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trireme")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--keep", help="a folder for run files and outputs")
    options = parser.parse_args()
    program = os.path.abspath(options.trireme)
    launcher = [os.environ.get("MPIEXEC", "mpirun"), *shlex.split(os.environ.get("MPIEXEC_FLAGS", "--bind-to none --oversubscribe"))]
    draw = random.Random(options.seed)
    folder = pathlib.Path(options.keep or tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokens.bin").write_bytes(array.array("H", [draw.randrange(1000) for _ in range(200_000)]).tobytes())
    done, refused, wrong = 0, 0, 0
    print("largest error  bytes  not predicted  run")
    while done < options.runs:
        keys, count = drawn_run(draw, options.ranks)
        name = f"run-{done + 1}"
        keys["run.output"] = name
        (folder / f"{name}.toml").write_text(written(keys))
        if launch([program, "plan", f"{name}.toml", "--ranks", str(count)], folder).returncode:
            refused += 1  # the draw does not fit its own mesh
            continue
        done += 1
        trained = launch([*launcher, "-n", str(count), program, "train", f"{name}.toml"], folder)
        if trained.returncode:
            wrong += 1
            print(f"{name}: train ended with {trained.returncode} where plan accepts it: {described(keys, count)}\n{trained.stderr[-2000:]}", flush=True)
            continue
        compared = launch([program, "plan", "--compare", name], folder)
        if compared.returncode:
            wrong += 1
            print(f"{name}: plan --compare ended with {compared.returncode}\n{compared.stderr}", flush=True)
            continue
        (off, line), moved, beside, measured = errors_of(compared.stdout)
        print(f"{off:12.2f}%  {'equal' if not moved else 'OFF':5}  {100 * beside / max(measured, 1):12.0f}%  {name}: {described(keys, count)}", flush=True)
        for found in ([line] if off > 1 else []) + moved:
            print(f"    {found}", flush=True)
        wrong += off > 1 or bool(moved)
    print(f"{done} runs, {refused} draws refused by plan, {wrong} with an error")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
