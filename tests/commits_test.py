#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the messages of this branch's commits (CONTRIBUTING.md, "Commits"): those that origin/main, or else main, does not
have, from the introduction of this test on. `commits_test.py BASE` checks those since BASE. Passes without a Git history."""

import pathlib
import re
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent
LAST_LINE = re.compile(r"Numerics: (unchanged|changed, because .+)")


def mistakes(message: str) -> list[str]:
    lines = message.strip().splitlines()
    if lines[0].startswith("Revert "):
        return []
    wrong = []
    if len(lines[0]) > 72:
        wrong.append(f"the summary has {len(lines[0])} characters; at most 72")
    if not re.match(r"[\w./-]+(, [\w./-]+)*: \S", lines[0]):
        wrong.append("the summary does not begin with its layers, as in `comm, store: `")
    if len(lines) > 1 and lines[1]:
        wrong.append("the second line is not empty")
    if not any(LAST_LINE.match(line) for line in lines[-3:]):  # its reason may take more than a line
        wrong.append("the last line is neither `Numerics: unchanged` nor `Numerics: changed, because ...`")
    return wrong


def git(*arguments: str) -> str | None:
    done = subprocess.run(["git", "-C", SOURCE, *arguments], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def main() -> int:
    assert mistakes("comm, store: share memory\n\nOne copy less.\n\nNumerics: unchanged\n") == []
    assert mistakes("nn: sum in fp64\n\nNumerics: changed, because sums of\nfp32 lose bits\n") == []
    assert len(mistakes("comm: " + "x" * 80 + "\n\nNumerics: unchanged")) == 1
    assert len(mistakes("Share memory\n\nNumerics: unchanged")) == 1
    assert len(mistakes("comm: share memory")) == 1
    assert len(mistakes("wip\nmore")) == 3
    bases = sys.argv[1:] or ["origin/main", "main"]
    base = next((base for base in bases if git("rev-parse", "--verify", "--quiet", base)), None)
    if base is None:
        print("commits: no history to check")
        return 0
    commits = [c for c in (git("rev-list", "--no-merges", f"{base}..HEAD") or "").split()
               if git("cat-file", "-e", f"{c}:tests/commits_test.py") is not None]
    wrong = [f"{c[:9]}: {mistake}" for c in commits for mistake in mistakes(git("log", "-1", "--format=%B", c) or "-")]
    print(*wrong, f"commits: {len(commits)} since {base}, {len(wrong)} mistakes", sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
