#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""faults.py >docs/faults.md: the page from the faults that tests describe in comments of this form, in any place of the
file, continued on indented lines:

    // Fault, saves: a power failure -> files are flushed before the rename
    //   that publishes them

`saves` is one of the SECTIONS below. tests/documents_test.py compares the page."""

import pathlib
import re
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
SECTIONS = {
    "saves": "Saves and full disks",
    "loading": "Damaged checkpoints and loading",
    "exports": "Exports and weights",
    "stops": "Stops, time limits and requeues",
    "hangs": "Hangs and lost ranks",
    "start": "Start: ranks, nodes, environment",
    "plans": "Run files and plans",
    "data": "Data, text and tokenizers",
    "numerics": "Numerics and evaluation",
    "files": "Files of other kinds, outputs, terminals",
}
HEAD = """# Faults, and the tests that inject them

Generated from comments of the tests: `python3 tests/support/faults.py >docs/faults.md`. A repaired fault gets such a
comment. Tests are files in `tests/`, without `_test.cpp` or `_test.sh`.

`TRIREME_FAULT=point:action[:rank[:step]],...` injects faults into a run, which warns of it. Actions: `kill`, `stop`,
`slow`, `usr1`, `throw`, `exit`, `nan` (a wrong value, or a refusal).

| points | of |
|---|---|
| `start.build`, `start.dp_rank`, `start.list`, `train.begin` | a start; `start.list`: a pipeline's list |
| `step.begin`, `grad.reduce`, `loss.sum` (infinite), `replica.flip`, `eval.batch`, `data.read`, `memory.allocate`, `shm.create` | a step |
| `pipeline.send` (withheld), `pipeline.take` | a pipeline |
| `experts.counts` (negative), `experts.overflow` (too large), `experts.dispatch`, `experts.loads` (withheld), `experts.combine` | experts |
| `load.read`, `export.write`, `ckpt.best` (marked, but its link is the old one) | files |
| `ckpt.` with `memory`, `copy`, `thread`, `stage`, `close`, `write`, `sync`, `manifest`, `rename`, `readback`, `gc` | a save, in this order |

`tests/support/system_calls` is a preloaded library that fails one system call of one rank, from the n-th time on, with
any errno. Parts of a test that a machine cannot run count as skipped; `tests/run.sh` ends with their list.

Two faults are tried by hand: without `/proc` a start ends with exit code 5 and the mount command; the only rank of a
node that freezes in MPI_Finalize is ended by Slurm, after all work was saved.
"""


def faults(text: str) -> list[tuple[str, str, str]]:
    """Section, fault and behaviour of each comment."""
    joined = re.sub(r"\n(?://|#) {2,}(?=\S)", " ", text)
    found = re.findall(r"^(?://|#) Fault, (\w+): (.*)$", joined, re.M)
    for section, row in found:
        assert section in SECTIONS, f"there is no section {section}"
        assert row.count(" -> ") == 1, f"one ' -> ' is needed: {row}"
    return [(section, *row.split(" -> ")) for section, row in found]


def page(tests: dict[str, str]) -> str:
    """The page from tests by name."""
    rows: dict[str, list[str]] = {section: [] for section in SECTIONS}
    for name, text in sorted(tests.items()):
        for section, fault, behaviour in faults(text):
            rows[section].append(f"| {fault} | {behaviour} | `{name}` |\n")
    table = "| fault | what Trireme does | test |\n|---|---|---|\n"
    return HEAD + "".join(f"\n## {title}\n\n{table}{''.join(rows[section])}" for section, title in SECTIONS.items())


def all_tests() -> dict[str, str]:
    files = [path for path in TESTS.rglob("*_test.*") if path.suffix in {".cpp", ".sh", ".py"}]
    return {re.sub(r"_test$", "", str(path.relative_to(TESTS).with_suffix(""))): path.read_text() for path in files}


if __name__ == "__main__":
    sys.stdout.write(page(all_tests()))
