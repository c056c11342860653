#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts phrases that are not plain technical English in comments, strings and documents. tests/language_counts.txt has the
allowed number by area and phrase, which may only fall.

    language_test.py             fails where a count is above the allowed one, and lists the lines of the worst phrases
    language_test.py --update    writes lower counts back; never higher ones
    language_test.py PHRASE      lists the lines with this phrase, such as `beside`, in all areas"""

import collections
import pathlib
import re
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent
COUNTS = SOURCE / "tests/language_counts.txt"
AREAS = {
    "sources": ("src", "include"),
    "documents": ("docs", "README.md", "CONTRIBUTING.md"),
    "tests": ("tests",),
    "scripts": ("jobs", "inputs"),
}
SUFFIXES = {".cpp", ".hpp", ".cu", ".cuh", ".h", ".md", ".sh", ".py", ".toml", ".cmake", ".sbatch"}
COMMENT = r"^\s*(?://[/!]?<?|#)\s*"
# Phrase: pattern and replacement. Patterns ignore case, except for the first words of a comment.
PHRASES = {
    "comment begins with Of": (rf"(?-i:{COMMENT}Of )(?!course)", "start with a noun or verb: 'Identifies ...'"),
    "comment begins with What": (rf"(?-i:{COMMENT}What )", "use a noun: 'Tensors saved for backward'"),
    "comment begins with Who": (rf"(?-i:{COMMENT}(?:Who|Whose|Whoever) )", "use a noun: 'Owner of a block'"),
    "nobody, everybody": (r"\b(?:nobody|everybody|somebody|anybody|whoever|whose turn)\b", "name the rank, thread, caller or user"),
    "told": (r"\b(?:told|tells?)\b", "is passed, is configured, reports"),
    "says": (r"\b(?:says?|said|speaks?|hears?)\b", "reports, logs, prints, states"),
    "asks": (r"\b(?:asks?|asked|answers?) (?:for|so|that|it|them|who|what|nothing|when|how|whether)\b", "requests, requires, returns"),
    "wants, knows": (r"\b(?:wants?|wishes|learns?|knows?) (?:to|what|how|whether|it|that)\b", "requires, reads, determines"),
    "what is ...": (r"\b(?:of|by|for|than|from|with|to|as) what (?:is|was|are|it|they|has|a|the|there|this|one)\b", "use a noun"),
    "goes on, gives up": (r"\b(?:goes? on|gives? (?:it |them )?up|went on|passed over|comes? to rest)\b", "continues, frees, skips, becomes idle"),
    "from then on": (r"\b(?:from then on|from here on|from now on|once more|in its place|by itself)\b", "then, again, instead"),
    "of its own": (r"\bof (?:its|their) own\b", "its own, separate"),
    "lies, stands": (
        r"\b(?:where it (?:lies|lay|stands)|lies? (?:alike|side by side|there|where)|stands? (?:there|beside)|lay there)\b",
        "is stored, is contiguous",
    ),
    "for want of": (r"\b(?:another future|for want of|without a word|in its turn|at its will|is of no|no longer than)\b", "because ... is missing, silently"),
    "that which": (r"\b(?:that which|those which|the one that|the ones that|such that is)\b", "use a noun"),
    "nothing but": (r"\b(?:nothing but|all but|nothing is to be|nothing of)\b", "only, all except"),
    "beside": (r"\bbeside\b", "concurrently with, next to, in addition to, compared with"),
}  # fmt: skip
# Personified or old-fashioned names of tests, which are claims in plain words, too.
TEST_NAME = re.compile(
    r"\bTEST(?:_F|_P)?\(\w+, \w*(?:Says?|Said|Tells?|Told|Knows?|Wants?|Asks|Nobody|Somebody|Everybody|Whoever|OfItsOwn|OfTheirOwn"
    r"|GivesUp|GoesOn|Beside|NothingBut)(?=[A-Z0-9]|\b)"
)
PATTERNS = {name: re.compile(pattern, re.IGNORECASE) for name, (pattern, _) in PHRASES.items()}
LONG = {".md": 300}

Found = dict[tuple[str, str], list[str]]


def prose(path: pathlib.Path, line: str) -> str:
    """Comments and strings of code; all of a document."""
    if path.suffix == ".md":
        return line
    if re.match(COMMENT, line):
        return line
    return " ".join(re.findall(r'//.*|#\s.*|"(?:[^"\\]|\\.)*"', line))


def phrases(path: pathlib.Path, line: str) -> list[str]:
    """The phrases of a line, each as often as it occurs."""
    text = prose(path, line)
    found = [name for name, pattern in PATTERNS.items() for _ in pattern.finditer(text)]
    if TEST_NAME.search(line):
        found.append("name of a test")
    if len(line) > LONG.get(path.suffix, len(line)):
        found.append("line too long")
    return found


def occurrences(root: pathlib.Path) -> Found:
    found: Found = collections.defaultdict(list)
    for area, folders in AREAS.items():
        for folder in folders:
            top = root / folder
            for path in [top] if top.is_file() else sorted(top.rglob("*")):
                if path.suffix not in SUFFIXES or path.name == pathlib.Path(__file__).name:
                    continue
                for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                    for phrase in phrases(path, line):
                        place = f"{path.relative_to(root)}:{number}: {line.strip()[:140]}"
                        found[area, phrase].append(place)
    return found


def read_counts(text: str) -> dict[tuple[str, str], int]:
    rows = [line.split(maxsplit=2) for line in text.splitlines() if line and not line.startswith("#")]
    return {(area, phrase): int(count) for count, area, phrase in rows}


def counts_text(counts: dict[tuple[str, str], int]) -> str:
    head = "# Allowed occurrences by area and phrase. They may only fall: tests/language_test.py --update\n"
    return head + "".join(f"{n:5} {area:9} {phrase}\n" for (area, phrase), n in sorted(counts.items()) if n > 0)


def lowered(allowed: dict[tuple[str, str], int], found: Found) -> dict[tuple[str, str], int]:
    return {key: min(n, len(found.get(key, ()))) for key, n in allowed.items()}


def too_many(allowed: dict[tuple[str, str], int], found: Found) -> list[str]:
    wrong = []
    for (area, phrase), places in sorted(found.items()):
        most = allowed.get((area, phrase), 0)
        if len(places) <= most:
            continue
        other = {"name of a test": "a claim in plain words: ReportsX, RequiresX, ResumesFromX"}
        better = PHRASES[phrase][1] if phrase in PHRASES else other.get(phrase, f"at most {LONG} characters")
        wrong.append(f"{area}: {phrase!r} occurs {len(places)} times, allowed are {most}; write: {better}")
        wrong += [f"  {place}" for place in places]
    return wrong


def test_rules() -> None:
    """Planted phrases are found, counts rise never and fall only with --update."""
    code, page = pathlib.Path("a.cpp"), pathlib.Path("a.md")
    planted = {
        "/// Of the shard.": "comment begins with Of",
        "  // What it holds.": "comment begins with What",
        "int x;  // nobody reads it": "nobody, everybody",
        'throw ConfigError("told to stop");': "told",
        "///< bytes beside the shard": "beside",
    }
    for line, phrase in planted.items():
        assert phrases(code, line) == [phrase], (line, phrases(code, line))
    assert phrases(code, "const bool beside = told(says);") == [], "names are no prose"
    assert phrases(code, "/// Of course.") == []
    assert phrases(page, "It runs beside another, beside a third.") == ["beside", "beside"]
    assert phrases(page, "x" * 301) == ["line too long"]
    assert phrases(code, "TEST(Mesh, SaysItsAxes) {") == ["name of a test"]
    assert phrases(code, "TEST(Mesh, ReportsItsAxes) {") == phrases(code, "TEST(Mesh, KnowledgeOfAxes) {") == []
    key = ("sources", "beside")
    assert too_many({key: 1}, {key: ["a.cpp:1: beside"]}) == []
    assert len(too_many({key: 1}, {key: ["a.cpp:1: beside", "a.cpp:2: beside"]})) == 3
    assert len(too_many({}, {key: ["a.cpp:1: beside"]})) == 2
    assert lowered({key: 5}, {key: ["a.cpp:1: beside"]}) == {key: 1}
    assert lowered({key: 1}, {key: ["a", "b"]}) == {key: 1}
    assert read_counts(counts_text({key: 3, ("tests", "of its own"): 4})) == {key: 3, ("tests", "of its own"): 4}


def main() -> int:
    test_rules()
    found = occurrences(SOURCE)
    arguments = sys.argv[1:]
    if arguments and arguments != ["--update"]:
        chosen = {key: places for key, places in found.items() if key[1] == " ".join(arguments)}
        if not chosen:
            print(f"no line has {' '.join(arguments)!r}; phrases: {', '.join([*PHRASES, 'name of a test', 'line too long'])}")
        for (area, _), places in sorted(chosen.items()):
            print(*places, f"{len(places)} in {area}", sep="\n")
        return 0
    allowed = read_counts(COUNTS.read_text()) if COUNTS.exists() else {key: len(found[key]) for key in found}
    if arguments:
        COUNTS.write_text(counts_text(lowered(allowed, found)))
    wrong = too_many(allowed, found)
    lower = sum(n - len(found.get(key, ())) for key, n in allowed.items() if n > len(found.get(key, ())))
    print(*wrong, sep="\n", end="\n" if wrong else "")
    totals = {area: sum(len(places) for (of, _), places in found.items() if of == area) for area in AREAS}
    print("phrases:", ", ".join(f"{n} in {area}" for area, n in totals.items()))
    if lower and not arguments:
        print(f"{lower} fewer than allowed: tests/language_test.py --update writes the lower counts")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
