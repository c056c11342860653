#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What documents name and there is not: keys of the run file that docs/run-file.md does not list, and messages in
docs/troubleshooting.md that no source says. Needs no build; cli.documented_commands runs the commands."""

import pathlib
import re
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent
OTHERS = {"faults.md", "from-pytorch.md", "scale.md"}  # name points of faults, keys of other programs, tests
FILES = r"\.(toml|jsonl|json|bin|py|txt|html|md|sh)$"


def unknown_keys(text: str, known: set[str]) -> list[str]:
    sections = "|".join(sorted({key.split(".")[0] for key in known}))
    quoted = " ".join(re.findall(r"`([^`\n]+)`", text))
    keys = re.findall(rf"(?<![\w./-])(?:{sections})\.[a-z_0-9]*[a-z0-9](?![\w(./*])", quoted)
    return sorted({key for key in keys if key not in known and not re.search(FILES, key)})


def unsaid_messages(table: str, said: str) -> list[str]:
    """First cells of the table's rows that have parts (around ...) which are not in `said`."""
    cells = [cell for row in re.findall(r"^\| (`[^|]*) \|", table, re.M) for cell in re.findall(r"`([^`]*)`", row)]
    assert len(cells) >= 10 or table.count("|") < 10, f"only {len(cells)} messages were found"
    return [cell for cell in cells if any(part not in said for part in cell.split(" ... "))]


def sources() -> str:
    """Sources with their string literals joined, and what others say that is explained."""
    files = [path for folder in ("src", "include") for path in sorted((SOURCE / folder).rglob("*.?pp"))]
    text = "".join(path.read_text() for path in files)
    return re.sub(r'"\s*\n\s*"', "", text) + (SOURCE / "docs/installing.md").read_text()


def main() -> int:
    known = set(re.findall(r"^\| `([a-z]+\.[a-z_0-9]+)` \|", (SOURCE / "docs/run-file.md").read_text(), re.M))
    assert len(known) >= 90, f"docs/run-file.md: only {len(known)} options were found"
    assert unknown_keys("`shard.size`, `shard.sizes = 2`, `shard.toml`, shard.none", {"shard.size"}) == ["shard.sizes"]
    assert unsaid_messages("| `a ... c` | x |\n| `a ... d` | x |", "a b c") == ["a ... d"]
    wrong = [
        f"{path.name}: {key}: docs/run-file.md has no such option; correct the name, or write it without `` where it is none"
        for path in [SOURCE / "README.md", *sorted((SOURCE / "docs").glob("*.md"))]
        if path.name not in OTHERS
        for key in unknown_keys(path.read_text(), known)
    ]
    table = (SOURCE / "docs/troubleshooting.md").read_text().split("## By message")[1]
    wrong += [f"troubleshooting.md: no source says {message!r}" for message in unsaid_messages(table, sources())]
    print(f"{len(known)} options", *wrong, sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
