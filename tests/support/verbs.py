#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""verbs.py >docs/verbs.md: the verbs, exchanges and passes of a schedule, from the comments of their declarations.
tests/documents_test.py compares the page."""

import pathlib
import re
import sys
import textwrap

SOURCE = pathlib.Path(__file__).resolve().parents[2]
HEAD = """# Verbs, exchanges and passes

Generated from comments in `include/trireme/schedule` and `src/schedule`:
`python3 tests/support/verbs.py >docs/verbs.md`. How they work together: [schedule.md](schedule.md).
"""


def joined(lines: str, mark: str) -> str:
    """The text of comment lines, for a cell of a table."""
    text = " ".join(line.strip().removeprefix(mark).strip() for line in lines.splitlines())
    return text.replace("|", r"\|").replace("<", "&lt;")


def item(name: str, text: str) -> str:
    """An item of a list."""
    return textwrap.fill(f"- {name}: {text}", 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) + "\n"


def read(*paths: str) -> str:
    return "".join((SOURCE / path).read_text() for path in paths)


def verbs() -> str:
    ops = read("include/trireme/schedule/op.hpp", "include/trireme/schedule/optimizer_ops.hpp")
    descriptions = "".join(path.read_text() for path in sorted((SOURCE / "src/schedule/verbs").glob("*.hpp")))
    meanings = {name: joined(text, "///") for text, name in re.findall(r"((?:^///.*\n)+)(?:enum class .*\n)?struct (\w+) \{", ops, re.M)}
    variant = re.search(r"using Op =\s+std::variant<([^>]*)>", ops)
    assert variant, "op.hpp has no variant of all verbs"
    rows = []
    for name in re.findall(r"\w+", variant[1]):
        part = re.split(rf"struct Description<{name}>[^{{]*\{{", descriptions)
        assert len(part) == 2 and name in meanings, f"{name} has no description or no comment"
        body = part[1].split("\ntemplate <>")[0]
        names = re.search(r"Names<\d+> names\{([^}]*)\}", body)
        printed = ", ".join(f"`{text}`" for text in re.findall(r'"(\w+)"', names[1])) if names else "names of exchanges, below"
        lane = re.search(r"static Lane lane\([^)]*\) \{(.*?)\}", body, re.S)
        lanes = sorted(set(re.findall(r"Lane::(\w+)", lane[1]))) if lane else []
        rows.append(item(f"{printed} ({name}{'; lane: ' if lanes else ''}{', '.join(lanes)})", meanings[name]))
    return "\n## Verbs\n\n" + "".join(rows)


def exchanges() -> str:
    table = read("src/schedule/exchange.cpp").split("exchange_table{{", 1)[1].split("\n}};", 1)[0]
    rows = ["| printed | group | collective | moves |\n|---|---|---|---|\n"]
    for comment, row in re.findall(r"((?:^    //.*\n)+)    \{(\.kind.*\n?(?:^     .*\n?)*)", table, re.M):
        field = dict(re.findall(r'\.(\w+) = (?:\w+::)*"?(\w+)"?', row))
        direction = f" -> {field['direction']}" if "direction" in field else ""
        rows.append(f"| `{field['name']}`{direction} | {field['group']} | {field['collective']} | {joined(comment, '//')} |\n")
    return "\n## Exchanges between stages\n\n" + "".join(rows)


def passes() -> str:
    declared = read("include/trireme/schedule/passes/passes.hpp")
    built = read("src/schedule/passes/build.cpp")
    names = [("compute_order", "training"), *re.findall(r'^    \{"(\w+)", For::(\w+),', built, re.M)]
    rows = []
    for name, purpose in names:
        before = declared.split(f"Schedule {name}(", 1)
        assert len(before) == 2, f"passes.hpp does not declare {name}"
        comment = re.findall(r"((?:^///.*\n)+)(?:struct .*\n(?:^ .*\n)+\};\n)?\[\[nodiscard\]\] \Z", before[0], re.M)
        assert comment, f"{name} has no comment"
        rows.append(item(f"`{name}` ({purpose})", joined(comment[-1], "///")))
    return "\n## Passes, in their order\n\n" + "".join(rows)


def page() -> str:
    return HEAD + verbs() + exchanges() + passes()


if __name__ == "__main__":
    sys.stdout.write(page())
