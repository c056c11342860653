#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""families.py: docs/families.md from the output of `trireme models` on standard input."""

import pathlib
import re
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
HEAD = """# Families

Generated: `trireme models | tests/support/families.py >docs/families.md`. Keys: [run-file.md](run-file.md);
limits and details by family: [models.md](models.md).

| `model.architecture` | class in transformers | models | block | keys of `[model]` |
|---|---|---|---|---|
"""
MULTIMODAL = """
## Multimodal directories, read as their text part

| `model_type` | class in transformers | text part |
|---|---|---|
"""


def page(printed: str, keys: set[str]) -> str:
    families, _, rest = printed.partition("\nRead as their text part")
    rows = []
    for first, second in re.findall(r"^(\S.*)\n +(.*)$", families, re.M):
        name, class_name, models = first.split(maxsplit=2)
        options = re.split(r", (?![a-z] )", second)
        settable = [f"`{option}`" for option in options if option.split()[0] in keys and option != "rope_scaling"]
        block = [option for option in options if option.split()[0] not in keys]
        rows.append(f"| `{name}` | {class_name} | {models} | {', '.join(block)} | {', '.join(settable)} |\n")
    multimodal = re.findall(r"^(\w+) +(\w+) +(.*)$", rest.split(":\n", 1)[1].split("\n\n")[0], re.M)
    return HEAD + "".join(rows) + MULTIMODAL + "".join(f"| `{name}` | {class_name} | {text} |\n" for name, class_name, text in multimodal)


if __name__ == "__main__":
    run_file = (SOURCE / "docs/run-file.md").read_text()
    sys.stdout.write(page(sys.stdin.read(), set(re.findall(r"^\| `model\.([a-z_0-9]+)`", run_file, re.M))))
