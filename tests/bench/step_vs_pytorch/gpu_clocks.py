# SPDX-License-Identifier: Apache-2.0
"""Clocks and power of the first GPU while something runs, as nvidia-smi samples them, and the step `clocks` of tests/gpu.sh."""
import json
import pathlib
import statistics
import subprocess
import sys
import threading
import time

FIELDS = ("clocks.sm", "power.draw", "clocks_event_reasons.active")
# Bits of NVML's nvmlClocksEventReasons: what holds the clocks down.
REASONS = {"power limit": 0x4, "hardware slowdown": 0x8, "thermal": 0x20 | 0x40, "power brake": 0x80}


class Sampler:
    """Passes each line of one nvidia-smi, which samples `fields` of the first GPU again and again while the block runs, to `line`. Each start of
    one costs the driver, and so the run that is measured, much more than a sample. Without nvidia-smi there are no lines."""
    fields, milliseconds = "", 100

    def __enter__(self):
        self.watcher = None
        try:
            self.watcher = subprocess.Popen(["nvidia-smi", f"--query-gpu={self.fields}", "--format=csv,noheader,nounits", "-i", "0",
                                             f"--loop-ms={self.milliseconds}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except FileNotFoundError:
            return self
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()
        return self

    def watch(self):
        for line in self.watcher.stdout:
            self.line(line)

    def __exit__(self, *_):
        if self.watcher is not None:
            self.watcher.terminate()
            self.thread.join()
            self.watcher.wait()


class Clocks(Sampler):
    """`figures` of the samples: their number, the median clock in MHz, its tenth percentile, the mean power in W, and the share of samples for
    each reason."""
    fields = ",".join(FIELDS)

    def __init__(self):
        self.samples = []

    def line(self, line):
        if (sample := parsed(line)) is not None:
            self.samples.append((time.time(), *sample))

    def figures(self, begin=0.0, end=float("inf")):
        """Of the samples in a span of time.time()."""
        return figures([sample[1:] for sample in self.samples if begin <= sample[0] <= end])


def parsed(line):
    """(MHz, W, mask of reasons) of a line; None where a field is missing."""
    fields = [field.strip() for field in line.split(",")]
    try:
        return float(fields[0]), float(fields[1]), int(fields[2], 16)
    except (IndexError, ValueError):
        return None


def figures(samples):
    """A dictionary; empty without samples."""
    if not samples:
        return {}
    mhz = sorted(sample[0] for sample in samples)
    return {"samples": len(samples), "mhz": statistics.median(mhz), "mhz_p10": mhz[len(mhz) // 10],
            "watts": statistics.mean(sample[1] for sample in samples),
            "reasons": {name: sum(bool(sample[2] & bits) for sample in samples) / len(samples) for name, bits in REASONS.items()}}


def shown(seen):
    """The figures as text."""
    if not seen:
        return "no samples of nvidia-smi"
    held = ", ".join(f"{name} {share:.0%}" for name, share in seen["reasons"].items() if share > 0)
    return f"{seen['mhz']:.0f} MHz (p10 {seen['mhz_p10']:.0f}), {seen['watts']:.0f} W, clocks held by: {held or 'nothing'}"


def clocks(arguments, work, runs_type, record, variant):
    """The 1B step for about 20 s with one microbatch and 20 s with four: clocks, power, MFU. True when both ran."""
    whole = True
    for microbatches in (1, 4):
        steps = 4 if arguments.rehearsal else 80 // microbatches
        runs = runs_type(arguments, work, arguments.model, steps, arguments.micro * microbatches)
        name = f"{arguments.model}, {microbatches} microbatch{'es' if microbatches > 1 else ''} a step"
        try:
            with Clocks() as seen:
                rows = runs.trireme(variant | {"batch.micro": arguments.micro})
        except RuntimeError as error:
            print(f"{name:30s} did not run: {error}", flush=True)
            record(arguments, "clocks", name=name, error=str(error))
            whole = False
            continue
        first = min(len(rows) - 1, 3)  # the products of the first steps are measured ones
        of_steps = seen.figures(rows[first]["time"], rows[-1]["time"]) or seen.figures()  # of the whole run where the steps are short
        mfu = statistics.median(row.get("mfu") or 0.0 for row in rows[first:])
        record(arguments, "clocks", name=name, mfu=mfu, step_seconds=statistics.median(row["step_seconds"] for row in rows[first:]), **of_steps)
        print(f"{name:30s} MFU {mfu:.1%}, {shown(of_steps)}", flush=True)
    return whole


def sampled(measured, step, command):
    """Runs gpu_limits_bench as COMMAND with clocks sampled; appends a record of each of its rows and of the clocks. True when every row ran."""
    output = pathlib.Path(measured).with_name(f"{step}.json")
    with Clocks() as seen:
        code = subprocess.run([*command, f"--benchmark_filter=^{step}/", f"--benchmark_out={output}", "--benchmark_out_format=json"],
                              check=False).returncode
    rows = json.loads(output.read_text())["benchmarks"] if code == 0 and output.exists() else []
    of_steps = seen.figures()
    print(f"{step}: {shown(of_steps)}")
    with open(measured, "a", encoding="utf-8") as file:
        for row in rows:
            counters = {key: value for key, value in row.items() if isinstance(value, float) and key not in ("real_time", "cpu_time")}
            failed = {"error": row.get("error_message", "error")} if row.get("error_occurred") else counters
            file.write(json.dumps({"step": step, "name": row["name"].split("/iterations")[0]} | failed) + "\n")
        file.write(json.dumps({"step": step, "clocks": of_steps}) + "\n")
    return bool(rows) and not any(row.get("error_occurred") for row in rows)


if __name__ == "__main__":
    sys.exit(0 if sampled(sys.argv[1], sys.argv[2], sys.argv[3:]) else 1)
