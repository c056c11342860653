#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails each system call of small commands once and judges what comes of it.

A site is a call (read, write, rename, ...) on a path. A first run lists the sites and how often each is reached; each
then fails at its first, its middle and its last call, one run a failure:

  - exit code 0: every loss and every product are those of the undisturbed run; where one is missing, an error or a
    warning names the reason;
  - another exit code: a documented one, with one message, and the same command then comes to the undisturbed end;
  - no signal, no exit code 1 (but of an MPI library whose MPI_Init fails), no time-out; checkpoints that were there are
    there and sound until newer ones are.

  sweep.py DIRECTORY         of tests/cli/small_run.sh; environment: TRIREME, SYSTEM_CALLS
TRIREME_TEST_LONG=1 makes all attacks; otherwise a random half minute. TRIREME_TEST_SEED repeats one.
"""
import collections
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time

WORK = pathlib.Path(sys.argv[1]).resolve()
TRIREME = os.environ["TRIREME"]
LONG = os.environ.get("TRIREME_TEST_LONG") == "1"
SECONDS = 540 if LONG else 30
EXIT_CODES = {2, 3, 4, 5, 6, 8, 75}
ERRORS = {"read": "EIO", "open": "EIO", "create": "EACCES", "write": "ENOSPC", "truncate": "EIO", "allocate": "ENOSPC",
          "fsync": "EIO", "flock": "ENOLCK", "mkdir": "EACCES", "rename": "EIO", "exchange": "EIO", "unlink": "EIO",
          "list": "EIO", "thread": "EAGAIN"}
TRAIN = ["train", "run.toml", "--set", "train.steps=6", "--set", "checkpoint.every=2", "--set", "checkpoint.keep=1",
         "--set", "data.validation=tokens.bin", "--set", "train.eval_every=3", "--set", "train.eval_steps=1",
         "--set", "run.export=end", "--set", "metrics.trace_steps=[5]", "--set", "metrics.tensorboard=true"]


class Scenario:
    """A command, what it starts from (files of WORK), and the products by which it is judged."""

    def __init__(self, name, command, inputs, products):
        self.name, self.command, self.inputs, self.products = name, command, inputs, products
        self.sites, self.expected = {}, None

    def prepare(self, where):
        where.mkdir()
        for name in self.inputs:
            source = WORK / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, where / name)


def run(command, where, **environment):
    """Exit code (None: a time-out) and standard error."""
    try:
        done = subprocess.run([TRIREME, *command], cwd=where, capture_output=True, text=True, errors="replace",
                              timeout=120, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired as end:
        return None, str(end.stderr)
    return done.returncode, done.stderr + done.stdout


def losses(path):
    """The losses of a metrics.jsonl by step and kind; the lines are whole."""
    found = collections.OrderedDict()
    for line in path.read_text().splitlines():
        row = json.loads(line)
        for key in ("loss", "eval_loss"):
            if key in row:
                assert (row["step"], key) not in found, f"step {row['step']} twice"
                found[row["step"], key] = row[key]
    return found


def same(found, expected):
    """Older checkpoints may be left where one failure kept a save from removing them."""
    if isinstance(found, list) and isinstance(expected, list):
        return found[-len(expected):] == expected
    return found == expected


def product(where, name):
    """What can be compared of a product: losses, checkpoints that are sound, or the bytes."""
    path = where / name
    if not path.exists():
        return None
    if name.endswith("metrics.jsonl"):
        return losses(path)
    if name.endswith("checkpoints"):
        kept = sorted(step.name for step in path.glob("step-*"))
        for step in kept:
            code, text = run(["verify", str(path / step)], where)
            assert code == 0, f"{step} is damaged: {text}"
        return kept
    if path.is_dir():
        if (path / "COMMIT").exists():
            code, text = run(["verify", str(path)], where)
            assert code == 0, f"{name} is damaged: {text}"
            return "sound"
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(path.iterdir())}
    return hashlib.sha256(path.read_bytes()).hexdigest()


def part_of(path):
    """The part of a path that identifies it in a rule: its end, or the part before process ids and times."""
    varies = re.search(r"\.[^/]*-\d+-\d+\.partial|\d{6,}\.|\.[A-Za-z0-9]{6}/", path)
    return path[:varies.start() + 1] if varies else path + "$"


def list_sites(scenario, where):
    log = where / "sites"
    code, text = run(scenario.command, where, LD_PRELOAD=os.environ["SYSTEM_CALLS"], SYSTEM_CALLS_SITES=str(log))
    assert code == 0, f"{scenario.name}: {code}: {text}"
    count = collections.Counter()
    for line in log.read_text().splitlines():
        call, _, path = line.partition(" ")
        path = path.split(" ")[0]
        if call not in ERRORS or path.endswith("/sites"):
            continue
        if path == "thread":
            count[call, "thread"] += 1
        elif path.startswith(f"{where}/"):
            count[call, part_of(path[len(str(where)):])] += 1
    scenario.sites = count
    scenario.expected = {name: product(where, name) for name in scenario.products}


def attacks(scenario):
    for (call, part), times in sorted(scenario.sites.items()):
        for nth in sorted({1, (times + 1) // 2, times}):
            yield scenario, call, part, nth


def judge(scenario, call, part, nth, where):
    """Runs one attack; raises AssertionError with the mistake in its end."""
    scenario.prepare(where)
    (where / "rules").write_text(f"{call} any {nth}-{nth} {ERRORS[call]} {part}\n")
    before = product(where, "out/checkpoints")
    code, text = run(scenario.command, where, LD_PRELOAD=os.environ["SYSTEM_CALLS"],
                     SYSTEM_CALLS_RULES=str(where / "rules"))
    assert code is not None, f"no end within 120 s: {text}"
    if code == 0:
        for name in scenario.products:
            found = product(where, name)
            if same(found, scenario.expected[name]):
                continue
            reported = re.search(r"(?i)\b(warning|error)\b", text)
            assert reported, f"exit code 0 and no warning, but {name} is {found} for {scenario.expected[name]}"
            if isinstance(found, dict) and name.endswith("metrics.jsonl"):
                wrong = [key for key, loss in found.items() if loss != scenario.expected[name].get(key)]
                assert not wrong, f"exit code 0 with wrong losses: {wrong}"
        return
    if code == 1 and call == "thread" and "MPI_INIT failed" in text:
        code = 5  # Open MPI's own report and exit code
    else:
        assert re.search(r"trireme: error: |\[rank \d+ ", text), f"exit code {code} without a message: {text}"
    assert code in EXIT_CODES, f"exit code {code}: {text}"
    if before:
        assert product(where, "out/checkpoints"), f"exit code {code}: no checkpoint is left: {text}"
    code, again = run(scenario.command, where)
    if code in (2, 8) and "exist" in again:  # the product is there: the failure was behind it
        code = 0
    assert code == 0, f"after {text}\nthe same command ends with {code}: {again}"
    for name in scenario.products:
        found = product(where, name)
        assert same(found, scenario.expected[name]), f"after {text}\n{name} is {found} for {scenario.expected[name]}"


def main():
    seed = int(os.environ.get("TRIREME_TEST_SEED", time.time_ns() % 1_000_000_000))
    os.environ["OMP_NUM_THREADS"] = "1"
    small = ["run.toml", "tokens.bin", "text.txt"]
    first = run([*TRAIN, "--set", "train.steps=4", "--set", "run.export=never"], WORK)
    assert first[0] == 0, first
    checkpoint = "out/checkpoints/step-00000004"
    assert run(["export", checkpoint, "-o", "hf"], WORK)[0] == 0
    scenarios = [
        Scenario("train", TRAIN, [*small, "out"], ["out/metrics.jsonl", "out/checkpoints", "out/export"]),
        Scenario("tokenize", ["tokenize", "--tokenizer", "bytes", "-o", "new.idx", "text.txt"], small,
                 ["new.idx", "new.bin"]),
        Scenario("export", ["export", checkpoint, "-o", "weights", "--overwrite"], [*small, "out"], ["weights"]),
        Scenario("import", ["import", "hf", "-o", "imported"], [*small, "hf"], ["imported"]),
        Scenario("evaluate", ["evaluate", "hf", "--data", "tokens.bin"], [*small, "hf"], []),
        Scenario("report", ["report", "out", "-o", "page.html"], [*small, "out"], ["page.html"])]
    where = WORK / "attack"
    planned = []
    for scenario in scenarios:
        scenario.prepare(where)
        list_sites(scenario, where)
        shutil.rmtree(where)
        planned += attacks(scenario)
    random.Random(seed).shuffle(planned)
    wrong, made, begin = [], collections.Counter(), time.monotonic()
    for scenario, call, part, nth in planned:
        if time.monotonic() - begin > SECONDS:
            break
        try:
            judge(scenario, call, part, nth, where)
        except AssertionError as problem:
            wrong.append(f"{scenario.name}: {call} {part}, call {nth}, {ERRORS[call]}: {problem}")
        made[scenario.name] += 1
        shutil.rmtree(where)
    print(f"seed {seed}: {sum(made.values())} of {len(planned)} failing calls tried {dict(made)}, {len(wrong)} wrong")
    for line in wrong:
        print(f"WRONG {line}\n")
    return 1 if wrong or not made else 0


if __name__ == "__main__":
    sys.exit(main())
