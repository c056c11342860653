#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weak scaling from 1 to 2 ranks on this machine, at compare.py's size, and where a step's time goes.

    scaling.py --trireme PROGRAM          tokens/s of a rank: alone, beside an independent rank, as one of two of a job
    scaling.py --trireme PROGRAM --ops    a job of 2 ranks with metrics.trace_steps: seconds of every kind of op, as Markdown

Each rank has 1 thread, is bound to one core and trains 2 sequences a step, in every run. Two ranks share memory bandwidth and
clock: two independent jobs of 1 rank, side by side on the same cores, show what that costs without communication. Runs of the
three kinds alternate, so that a slow moment of a shared machine strikes all; ratios are medians over the rounds.

--ops measures the machine first (`trireme doctor --measure`) and sums up what `trireme plan --compare` makes of the traced
runs: seconds of a step by kind of op beside those that the measured rates give, but for ops below half a millisecond."""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

from compare import SHAPES, cpu_name, write_tokens

SHAPE = SHAPES["bench"]
MICRO = 2
WARM_UP = 2  # steps
# The ranks of a job on neighbouring cores, from the first on.
PINNED = 'exec taskset -c $((FIRST_CORE + ${PMIX_RANK:-${PMI_RANK:-0}})) "$@"'


class Bench:
    def __init__(self, arguments, work):
        self.a, self.work, self.number = arguments, work, 0
        self.tokens = work / "tokens.bin"
        write_tokens(self.tokens, SHAPE["vocab_size"], 2 * MICRO * arguments.steps * SHAPE["seq_len"] + 1)

    def start(self, ranks, first_core, precision, changes=()):
        """A job in the background, and its directory."""
        self.number += 1
        output = self.work / f"run-{self.number}"
        settings = {
            "model.vocab_size": SHAPE["vocab_size"], "model.hidden_size": SHAPE["hidden_size"],
            "model.intermediate_size": SHAPE["intermediate_size"], "model.layers": SHAPE["num_hidden_layers"],
            "model.heads": SHAPE["num_attention_heads"], "model.kv_heads": SHAPE["num_key_value_heads"],
            "data.train": str(self.tokens), "data.format": "uint16", "data.seq_len": SHAPE["seq_len"],
            "batch.global": MICRO * ranks, "batch.micro": MICRO, "precision.compute": precision,
            "train.steps": self.a.steps, "device.threads": 1, "checkpoint.at_end": False, "run.output": str(output),
            **self.a.set, **dict(changes),
        }
        sections = {}
        for key, value in settings.items():
            section, name = key.split(".")
            sections.setdefault(section, []).append(f"{name} = {json.dumps(value)}")
        run_file = self.work / f"run-{self.number}.toml"
        run_file.write_text("".join(f"[{s}]\n" + "\n".join(lines) + "\n" for s, lines in sections.items()))
        return output, self.launch(ranks, first_core, "train", run_file)

    def launch(self, ranks, first_core, *words):
        command = ["mpirun", "--bind-to", "none", "--oversubscribe", "-n", ranks, "sh", "-c", PINNED, "sh", self.a.trireme, *words]
        environment = dict(os.environ, OMP_NUM_THREADS="1", FIRST_CORE=str(first_core), OMPI_ALLOW_RUN_AS_ROOT="1",
                           OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        return subprocess.Popen([str(word) for word in command], env=environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def finish(self, job):
        text = job.communicate()[0]
        if job.returncode != 0:
            sys.exit(f"{' '.join(job.args)}\nended with {job.returncode}:\n{text}")

    def rates(self, *jobs):
        """Of each job: tokens/s of a rank, from the median step, and the share of its steps that is exposed communication."""
        for _, job in jobs:
            self.finish(job)
        found = []
        for output, _ in jobs:
            rows = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()][WARM_UP:]
            seconds = statistics.median(row["step_seconds"] for row in rows)
            exposed = statistics.median(row["exposed_comm_seconds"] for row in rows)
            found.append((MICRO * SHAPE["seq_len"] / seconds, exposed / seconds))
        return found

    def scaling(self, precision):
        rounds = []
        for number in range(1, self.a.repeats + 1):
            alone = [self.rates(self.start(1, core, precision))[0][0] for core in (0, 1)]
            beside = [rate for rate, _ in self.rates(*[self.start(1, core, precision) for core in (0, 1)])]
            (pair, exposed), = self.rates(self.start(2, 0, precision))
            rounds.append((statistics.mean(alone), statistics.mean(beside), pair, exposed))
            print(f"{precision} round {number}: alone {alone[0]:.0f} and {alone[1]:.0f} tokens/s, side by side {beside[0]:.0f} and "
                  f"{beside[1]:.0f}, each of 2 ranks {pair:.0f}, {exposed:.1%} of the step exposed communication", flush=True)
        alone, beside, pair, exposed = (statistics.median(column) for column in zip(*rounds))
        limit, weak, of_limit = (statistics.median(ratios) for ratios in
                                 zip(*[(b / a, p / a, p / b) for a, b, p, _ in rounds]))
        print(f"{precision}: alone {alone:.0f} tokens/s, side by side {beside:.0f} ({limit:.1%}), each of 2 ranks {pair:.0f}: weak scaling "
              f"{weak:.1%}, {of_limit:.1%} of side by side; exposed communication {exposed:.1%} of the step", flush=True)

    def ops(self, precision, machine):
        """{(what, lane, count): (predicted, measured)}, in milliseconds."""
        traced = list(range(WARM_UP + 1, self.a.steps))
        output, job = self.start(2, 0, precision, {"metrics.trace_steps": traced})
        self.finish(job)
        compared = subprocess.run([str(self.a.trireme), "plan", "--compare", str(output), "--machine", str(machine)],
                                  capture_output=True, text=True, check=True).stdout
        rows = {}
        for line in compared[compared.index("time of a step"):].splitlines():
            what, *cells = re.split(r"  +", line.strip())
            times = [milliseconds(cell) for cell in cells if re.fullmatch(r"[0-9.]+ m?s", cell)]
            if cells and times:
                lane, count = cells[:2] if len(cells) == 5 else ("", "")
                rows[what, lane, count] = times[0] if len(times) == 2 else None, times[-1]
        return rows


def milliseconds(text):
    number, unit = text.split()
    return float(number) * {"s": 1000, "ms": 1}[unit]


def ops_table(by_precision):
    """Markdown."""
    head = ["ms of a step", "lane", "times", *(f"{p}, {what}" for p in by_precision for what in ("predicted", "measured"))]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for what in dict.fromkeys(what for rows in by_precision.values() for what in rows):
        times = [time for rows in by_precision.values() for time in rows.get(what, (None, None))]
        if max((time for time in times if time is not None), default=0) >= 0.5:
            lines.append("| " + " | ".join([*what, *("" if time is None else f"{time:.1f}" for time in times)]) + " |")
    return "\n".join(lines)


def setting(text):
    key, value = text.split("=", 1)
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", type=lambda path: pathlib.Path(path).resolve(), required=True, help="the program")
    parser.add_argument("--ops", action="store_true", help="where a step's time goes, instead of weak scaling")
    parser.add_argument("--precision", nargs="+", choices=["fp32", "bf16"], default=["fp32", "bf16"])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--set", type=setting, action="append", default=[], metavar="KEY=VALUE", help="of the run file")
    arguments = parser.parse_args()
    arguments.set = dict(arguments.set)
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("only one core is available: weak scaling from 1 to 2 ranks requires two")
    with tempfile.TemporaryDirectory(prefix="trireme-scaling-") as work:
        bench = Bench(arguments, pathlib.Path(work))
        print(f"{cpu_name()}, {os.cpu_count()} cores", flush=True)
        if arguments.ops:
            machine = pathlib.Path(work) / "machine.toml"
            bench.finish(bench.launch(2, 0, "doctor", "--measure", "-o", machine))
            print(ops_table({precision: bench.ops(precision, machine) for precision in arguments.precision}))
            return 0
        for precision in arguments.precision:
            bench.scaling(precision)
    return 0


if __name__ == "__main__":
    sys.exit(main())
