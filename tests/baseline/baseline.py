#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares two builds for restructurings that must not change behaviour.

    tests/baseline/baseline.py record BUILD DIRECTORY [--parts plans,configurations,...] [--quick]
    tests/baseline/baseline.py compare DIRECTORY DIRECTORY

`record` needs the targets `trireme_full`, `trireme` and `baseline` in BUILD and writes one file for each part:

  plans           `trireme plan` of inputs/ on 40 meshes: summary, schedule, memory and traffic
  configurations  300 random configurations: schedule, needs edges, replayed memory and traffic of the first and last rank
  runs            200 random runs of 5 steps on 1 to 8 ranks, in fp32 and bf16, on CPUs and simulated GPUs: curve, and
                  digests of masters and moments
  launches        kernels, operators and collectives of a step on simulated GPUs, with shapes and streams, in order
  times           seconds of a step of inputs/quickstart.toml on 2 CPU ranks; printed by `compare`, never a difference

`compare` prints the lines that differ, grouped over sections, and exits with 1 if there are any. Digests are equal on one
machine only: kernels depend on its instruction set."""

import argparse
import collections
import concurrent.futures
import datetime
import difflib
import gzip
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
PARTS = ("plans", "configurations", "runs", "launches", "times")
VIEWS = ("summary", "schedule", "memory", "traffic")
CPU_RUNS = {1: 25, 2: 25, 3: 20, 4: 25, 6: 15, 8: 20}  # runs by ranks: 130
GPU_RUNS = {1: 30, 2: 24, 4: 16}  # 70
CONFIGURATIONS = 300
SHOWN = 40  # lines of differences of a part

Sections = dict[str, list[str]]


# --- recording ---------------------------------------------------------------------------------------------------------


def meshes() -> list[tuple[int, dict[str, str]]]:
    """Rank counts and settings: every axis, pairs of axes, every policy of communication and memory."""
    pipelines = [(4, {"mesh.pipeline": "4", "pipeline.schedule": kind}) for kind in ("gpipe", "1f1b", "interleaved", "zb_h1", "zbv", "dualpipev")]
    policies = [
        (8, {key: value})
        for key, value in (
            ("sync.policy", "deferred"),
            ("sync.policy", "immediate_all"),
            ("sync.reshard_after_forward", "false"),
            ("sync.reshard_after_forward", "2"),
            ("sync.reshard_after_backward", "false"),
            ("sync.prefetch_bytes", "0"),
            ("memory.recompute", "none"),
            ("memory.recompute", "block"),
            ("memory.activation_offload", "true"),
            ("memory.offload", "optimizer"),
            ("memory.offload", "parameters"),
            ("precision.masters", "split"),
            ("precision.reduce", "bf16"),
        )
    ]
    axes = [
        (1, {}),
        (8, {}),
        (64, {}),
        (8, {"mesh.replicate": "2"}),
        (64, {"mesh.replicate": "8", "sync.policy": "deferred"}),
        (2, {"mesh.tensor": "2"}),
        (8, {"mesh.tensor": "4", "mesh.sequence_parallel": "false"}),
        (64, {"mesh.tensor": "8"}),
        (4, {"mesh.context": "2"}),
        (8, {"mesh.context": "4", "memory.recompute": "block"}),
        (8, {"mesh.context": "2", "context.method": "heads"}),
        (8, {"mesh.expert": "2"}),
        (8, {"mesh.expert": "8"}),
        (64, {"mesh.expert": "8", "mesh.replicate": "2"}),
        (8, {"mesh.tensor": "2", "mesh.context": "2"}),
        (16, {"mesh.tensor": "2", "mesh.expert": "4"}),
        (16, {"mesh.pipeline": "2", "mesh.tensor": "4"}),
        (16, {"mesh.pipeline": "2", "mesh.context": "2", "pipeline.schedule": "zb_h1"}),
        (16, {"mesh.pipeline": "4", "mesh.expert": "4", "pipeline.schedule": "dualpipev"}),
        (64, {"mesh.pipeline": "2", "mesh.tensor": "2", "mesh.context": "2", "mesh.replicate": "2"}),
        (64, {"mesh.pipeline": "2", "mesh.tensor": "2", "mesh.context": "2", "mesh.expert": "4"}),
    ]
    found = axes + pipelines + policies
    assert len(found) == 40, len(found)
    return found


def settings_of(ranks: int, changes: dict[str, str]) -> list[str]:
    """All axes, and a batch of a few microbatches: a schedule repeats itself after those."""
    settings = {f"mesh.{axis}": "1" for axis in ("replicate", "tensor", "context", "pipeline", "expert")}
    settings |= {"mesh.shard": "-1"} | changes
    pipeline = int(settings["mesh.pipeline"])
    samples = ranks // pipeline // int(settings["mesh.tensor"]) // int(settings["mesh.context"])
    settings |= {"batch.micro": "1", "batch.global": str(samples * (2 * pipeline if pipeline > 1 else 3))}
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]


def plan_section(build: pathlib.Path, run: pathlib.Path, ranks: int, changes: dict[str, str]) -> tuple[str, list[str]]:
    title = f"plan of {run.name}: {ranks} ranks" + "".join(f", {key}={value}" for key, value in changes.items())
    lines = []
    for view in VIEWS:
        command = [build / "trireme", "plan", run, "--ranks", str(ranks), "--show", view, *settings_of(ranks, changes)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        # The wording of a refusal may change.
        lines += [f"{view}: exit code {done.returncode}", *done.stdout.splitlines()]
        if done.returncode != 0:
            break
    return title, lines


def record_plans(build: pathlib.Path, quick: bool) -> Sections:
    """The run files without their own mesh and pipeline."""
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = []
        for path in sorted((SOURCE / "inputs").glob("*.toml")):
            runs.append(pathlib.Path(scratch) / path.name)
            runs[-1].write_text(re.sub(r"(?ms)^\[(?:mesh|pipeline)\].*?(?=^\[|\Z)", "", path.read_text()))
        cases = [(run, *mesh) for run in runs for mesh in (meshes()[::8] if quick else meshes())]
        return dict(pool.map(lambda case: plan_section(build, *case), cases))


def environment(**more: str) -> dict[str, str]:
    libraries = {"OMP_NUM_THREADS": "1", "OMP_PROC_BIND": "false", "OMP_WAIT_POLICY": "passive"}
    mpi = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}
    return os.environ | libraries | mpi | {"CUDA_VISIBLE_DEVICES": "", "TRIREME_SIMULATED_GPUS": "4"} | more


def run_recorder(build: pathlib.Path, test: str, ranks: int, cases: int = 0, device: str = "cpu") -> Sections:
    """What one start of the program `baseline` records."""
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch) / "out.txt"
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), build / "baseline"]
        settings = {"OUT": str(out), "CASES": str(cases), "DEVICE": device}
        began = time.monotonic()
        done = subprocess.run(
            [*command, f"--gtest_filter=Baseline.{test}"],
            env=environment(**{f"TRIREME_BASELINE_{key}": value for key, value in settings.items()}),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=3600,
        )  # fmt: skip
        if done.returncode != 0:
            sys.exit(f"baseline {test} on {ranks} ranks failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
        print(f"  {test} on {ranks} {device} ranks: {time.monotonic() - began:.0f} s", flush=True)
        return sections_of(out.read_text())


def record_configurations(build: pathlib.Path, quick: bool) -> Sections:
    return run_recorder(build, "Configurations", 1, CONFIGURATIONS // (20 if quick else 1))


def record_runs(build: pathlib.Path, quick: bool) -> Sections:
    found: Sections = {}
    for device, counts in (("cpu", CPU_RUNS), ("gpu", GPU_RUNS)):
        for ranks, cases in counts.items():
            found |= run_recorder(build, "Runs", ranks, 2 if quick else cases, device)
    return found


def named_kernels(sections: Sections, program: pathlib.Path) -> Sections:
    """Offsets of kernels in the program replaced by their names."""
    symbols = subprocess.run(["nm", "-C", program], capture_output=True, text=True, check=True).stdout
    names = {int(a, 16): name for a, name in re.findall(r"^([0-9a-f]+) [tTwW] (.*)$", symbols, re.M)}
    name = lambda found: "kernel " + names[int(found[1], 16)]  # noqa: E731
    return {title: [re.sub(r"kernel \+0x([0-9a-f]+)", name, line) for line in lines] for title, lines in sections.items()}


def record_launches(build: pathlib.Path, quick: bool) -> Sections:
    found = run_recorder(build, "Launches", 1, device="gpu")
    if not quick:
        found |= run_recorder(build, "Launches", 2, device="gpu")
    return named_kernels(found, build / "baseline")


def record_times(build: pathlib.Path, quick: bool) -> Sections:
    """Seconds of 7 steps after 3, and their median."""
    steps = 4 if quick else 10
    with tempfile.TemporaryDirectory() as scratch:
        tokens = pathlib.Path(scratch) / "tokens.bin"
        tokens.write_bytes(b"".join((i * i % 257).to_bytes(2, "little") for i in range(200_000)))
        changes = {
            "data.train": tokens, "run.output": f"{scratch}/out", "run.export": "never", "train.steps": steps,
            "checkpoint.every": 0, "checkpoint.at_end": "false", "metrics.report": "false", "device.type": "cpu",
        }  # fmt: skip
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2", build / "trireme", "train"]
        done = subprocess.run(
            [*command, SOURCE / "inputs/quickstart.toml", *(f"--set={key}={value}" for key, value in changes.items())],
            env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        if done.returncode != 0:
            sys.exit(f"inputs/quickstart.toml failed on 2 ranks:\n{done.stderr[-4000:]}")
        rows = map(json.loads, (pathlib.Path(scratch) / "out/metrics.jsonl").read_text().splitlines())
        seconds = [row["step_seconds"] for row in rows if "step_seconds" in row][3:]
    text = f"median {statistics.median(seconds):.4f} s, from {min(seconds):.4f} to {max(seconds):.4f} s"
    return {"seconds of a step, quickstart on 2 CPU ranks": [f"{text}, load average {os.getloadavg()[0]:.1f}"]}


def record(build: pathlib.Path, directory: pathlib.Path, parts: list[str], quick: bool) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    build = build.resolve()
    seconds = {}
    for part in parts:
        print(part, flush=True)
        began = time.monotonic()
        sections = globals()[f"record_{part}"](build, quick)
        seconds[part] = round(time.monotonic() - began)
        write(directory / f"{part}.txt.gz", sections)
        print(f"  {len(sections)} sections in {seconds[part]} s", flush=True)
    version = subprocess.run([build / "trireme", "--version"], capture_output=True, text=True).stdout.split("\n")[0]
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    about = {
        "build": str(build), "version": version, "machine": platform.node(),
        "cpu": cpu[1] if cpu else platform.machine(), "cores": os.cpu_count(),
        "date": datetime.datetime.now().isoformat(timespec="minutes"), "seconds": seconds,
    }  # fmt: skip
    (directory / "about.json").write_text(json.dumps(about, indent=1) + "\n")


# --- files -------------------------------------------------------------------------------------------------------------


def sections_of(text: str) -> Sections:
    found: Sections = {}
    for line in text.splitlines():
        if line.startswith("== "):
            assert line[3:] not in found, f"two sections {line[3:]!r}"
            found[line[3:]] = lines = []
        else:
            lines.append(line)
    return found


def write(path: pathlib.Path, sections: Sections) -> None:
    with gzip.open(path, "wt", compresslevel=6) as file:
        for title, lines in sections.items():
            file.write("\n".join([f"== {title}", *lines, ""]))


def read(path: pathlib.Path) -> Sections:
    with gzip.open(path, "rt") as file:
        return sections_of(file.read())


# --- comparing ---------------------------------------------------------------------------------------------------------


def changed_lines(before: list[str], after: list[str]) -> list[str]:
    """Lines that are gone (-) and new (+); lines in another order if they are the same."""
    if len(before) + len(after) < 4000:
        changed = difflib.unified_diff(before, after, n=0, lineterm="")
        return [line for line in list(changed)[2:] if not line.startswith("@@")]
    counts = collections.Counter(after)
    counts.subtract(before)
    changed = [("+" if n > 0 else "-") + line for line, n in counts.items() for _ in range(abs(n))]
    return changed or ["another order of the same lines"]


def differences(before: Sections, after: Sections) -> list[str]:
    """Sections that only one side has, then changed lines with the number of sections that have the change."""
    found = [f"only in the first: {title}" for title in before.keys() - after.keys()]
    found += [f"only in the second: {title}" for title in after.keys() - before.keys()]
    places: dict[str, list[str]] = {}
    for title in before.keys() & after.keys():
        if before[title] != after[title]:
            for line in dict.fromkeys(changed_lines(before[title], after[title])):
                places.setdefault(line, []).append(title)
    # A change that many sections have is one line; the others by their section.
    ordered = sorted(places.items(), key=lambda item: (-len(item[1]), min(item[1])))
    return sorted(found) + [f"{line}    ({titles[0] if len(titles) == 1 else f'{len(titles)} sections, such as {min(titles)}'})" for line, titles in ordered]


def compare(first: pathlib.Path, second: pathlib.Path) -> int:
    """The number of parts that differ."""
    about = [json.loads((directory / "about.json").read_text()) for directory in (first, second)]
    for side in about:
        print(f"{side['version']} in {side['build']}, {side['date']}, {side['cpu']}, {side['cores']} cores")
    if about[0]["cpu"] != about[1]["cpu"]:
        print("recorded on different CPUs: digests of runs may differ for that reason")
    differing = 0
    for part in PARTS:
        sides = [directory / f"{part}.txt.gz" for directory in (first, second)]
        if not all(side.exists() for side in sides):
            print(f"{part}: not recorded in {' and '.join(str(side.parent) for side in sides if not side.exists())}")
            continue
        before, after = map(read, sides)
        if part == "times":
            for side in (before, after):
                print(*(f"times: {title}: {line}" for title, lines in side.items() for line in lines), sep="\n")
            continue
        found = differences(before, after)
        equal = sum(before[title] == after.get(title) for title in before)
        print(f"{part}: {equal} of {len(before)} sections are equal, {len(found)} differences")
        print(*(f"  {line}" for line in found[:SHOWN]), sep="\n", end="\n" if found else "")
        if len(found) > SHOWN:
            print(f"  and {len(found) - SHOWN} more")
        differing += bool(found)
    return differing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="record a build")
    recording.add_argument("build", type=pathlib.Path)
    recording.add_argument("directory", type=pathlib.Path)
    recording.add_argument("--parts", default=",".join(PARTS), help="comma-separated; default: all")
    recording.add_argument("--quick", action="store_true", help="a few cases of each part, to try the tool itself")
    comparing = commands.add_parser("compare", help="compare two recordings; exit code 1 if they differ")
    comparing.add_argument("first", type=pathlib.Path)
    comparing.add_argument("second", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.command == "compare":
        return int(compare(arguments.first, arguments.second) > 0)
    parts = arguments.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}. Parts are {', '.join(PARTS)}")
    record(arguments.build, arguments.directory, parts, arguments.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main())
