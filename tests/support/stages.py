#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stages.py >docs/stages.md: the stages of a model and their tensors, from the comments and tables of src/model and
include/trireme/model. tests/documents_test.py compares the page."""

import pathlib
import re
import sys
import textwrap

SOURCE = pathlib.Path(__file__).resolve().parents[2]
HEAD = """# Stages and their tensors

Generated from `include/trireme/model` and `src/model`: `python3 tests/support/stages.py >docs/stages.md`.

A block of a model is a list of stages. A stage reads its input, writes its output and keeps tensors for its backward;
nothing else passes between stages. Without exchanges a sublayer is one stage (`attention`, `mlp`, `moe`, `head`). Where
ranks exchange something within it, it is divided into the stages between the exchanges
([verbs.md](verbs.md#exchanges-between-stages)). New ones: [add-a-stage.md](add-a-stage.md). Bytes of the tensors that a
run keeps: `trireme plan RUN.toml --ranks N --show memory`.
"""


def values(text: str, name: str) -> list[tuple[str, str]]:
    """Names of an enumeration with their comments, which may continue on the next lines."""
    body = re.search(rf"enum class {name}(?: : [\w:]+)? \{{\n(.*?)\n\}};", text, re.S)
    assert body, f"there is no enumeration {name}"
    found: list[tuple[str, str]] = []
    for line in body[1].splitlines():
        parts = re.fullmatch(r"\s*(\w+)(?: = \d+)?,?\s*(?:///< (.*))?", line)
        if parts:
            found.append((parts[1], parts[2] or ""))
        elif found and (more := re.fullmatch(r"\s*///<\s*(.*)", line)):
            found[-1] = (found[-1][0], f"{found[-1][1]} {more[1]}")
    return found


def cases(text: str, function: str) -> dict[str, str]:
    """What a switch returns for each kind of stage."""
    found: dict[str, str] = {}
    waiting: list[str] = []
    body = text.split(f"{function}(StageKind kind) {{", 1)[-1].split("\n}\n", 1)[0]
    for kind, result in re.findall(r"case StageKind::(\w+):(?: return (.*);)?$", body, re.M):
        waiting.append(kind)
        if result:
            found |= dict.fromkeys(waiting, result)
            waiting = []
    return found


def page() -> str:
    decoder = (SOURCE / "include/trireme/model/decoder.hpp").read_text()
    tensors = (SOURCE / "include/trireme/model/stage_tensors.hpp").read_text()
    between = cases((SOURCE / "src/model/stage_tensors.cpp").read_text(), "tensors_of")
    work = cases((SOURCE / "include/trireme/model/stage_work.hpp").read_text(), "work_of")
    rows = ["\n## Stages\n\n| stage | meaning | input | output | computations |\n|---|---|---|---|---|\n"]
    for kind, meaning in values(decoder, "StageKind"):
        ends = re.fullmatch(r"\{(\w+), (\w+)\}", between.get(kind, "")) or ("", "", "")
        computed = ", ".join(re.findall(r"Work::(\w+)", work.get(kind, "")))
        rows.append(f"| `{kind}` | {meaning} | {ends[1]} | {ends[2]} | {computed} |\n")
    rows.append("\n## Tensors\n\nThose between stages come first. N tokens, R rows of experts.\n\n| tensor | contents |\n|---|---|\n")
    named = values(tensors, "TensorId")
    rows += [f"| `{name}` | {meaning.replace('|', chr(92) + '|')} |\n" for name, meaning in named if meaning]
    others = textwrap.fill("Others: " + ", ".join(f"`{name}`" for name, meaning in named if not meaning) + ".", 120)
    return f"{HEAD}{''.join(rows)}\n{others}\n"


if __name__ == "__main__":
    sys.stdout.write(page())
