#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keys of the run file that documents name and the table of options (docs/run-file.md) does not have. Needs no build."""

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


def main() -> int:
    known = set(re.findall(r"^\| `([a-z]+\.[a-z_0-9]+)` \|", (SOURCE / "docs/run-file.md").read_text(), re.M))
    assert len(known) >= 90, f"docs/run-file.md: only {len(known)} options were found"
    assert unknown_keys("`shard.size`, `shard.sizes = 2`, `shard.toml`, shard.none", {"shard.size"}) == ["shard.sizes"]
    wrong = [
        f"{path.name}: {key}: docs/run-file.md has no such option; correct the name, or write it without `` where it is none"
        for path in [SOURCE / "README.md", *sorted((SOURCE / "docs").glob("*.md"))]
        if path.name not in OTHERS
        for key in unknown_keys(path.read_text(), known)
    ]
    print(f"{len(known)} options", *wrong, sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
