# SPDX-License-Identifier: Apache-2.0
"""scale.py DIRECTORY [TABLE]: what DIRECTORY/<run>-<ranks>/rank-<r>.json count must be what table.txt lists, and nothing may
grow with the ranks but what is listed here. TABLE: writes the table there instead.
scale.py --markdown: docs/counted-calls.md."""

import collections
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).parent
RUNS = {**dict.fromkeys(("start", "steps", "saves", "removals", "all", "resume"), (2, 8, 32)), "mixed": (8,), "mixed-resume": (8,)}
# Phases, as sums of runs with factors.
PHASES = {
    "start, a step, stop": {"start": 1},
    "two more steps": {"steps": 1, "start": -1},
    "an evaluation": {"all": 1, "saves": -1},
    "three saves": {"saves": 1, "steps": -1},
    "two removals": {"removals": 1, "saves": -1},
    "a load": {"resume": 1, "start": -1},
    "mixed mesh": {"mixed": 1},
    "mixed mesh, load": {"mixed-resume": 1},
}
MEMORY = "memory objects"  # the peak of a run, not of a phase
MEMORY_OF = {"start, a step, stop": "start", "three saves": "all", "a load": "resume", "mixed mesh": "mixed"}
FIRST, OTHERS = 0, 1
WHO = ("the first rank", "another rank")

# Calls that grow, by phase and pattern: what n ranks make at most, of2 being what 2 make; of the first rank, of each other one.
CALLS = {
    # A message to and from each other rank for each of a step's reductions: sums are computed in rank order.
    ("start, a step, stop", "(send|receive) world"): (lambda of2, n: 4 * (n - 1),) * 2,
    ("two more steps", "(send|receive) world"): (lambda of2, n: 8 * (n - 1),) * 2,
    # One rank looks at the size of every file of a checkpoint to load: it determines which checkpoint is complete.
    ("a load", "look .*/step-#/shards/.*"): (lambda of2, n: of2 - 2 + n, lambda of2, n: of2),
    # One rank unlinks every file of a removed checkpoint.
    ("two removals", "change .*removed/shards/.*"): (lambda of2, n: 2 * n, lambda of2, n: 0),
}
# Bytes that grow by so many a rank at most, of the first rank and of each other one.
BYTES = {
    ("start, a step, stop", "allgather world"): (1600, 1600),  # shards are padded to the same length
    ("two more steps", "allgather world"): (3200, 3200),
    ("an evaluation", "allgather world"): (1200, 1200),
    ("start, a step, stop", "gather world"): (600, 0),  # step times
    ("(start, a step, stop|three saves)", "broadcast world"): (60, 60),  # identities of directories, within a node
    ("three saves", "gather world"): (4500, 0),  # a rank's part of the index
    ("a load", "gather world"): (200, 0),  # the pieces that a rank reads
    ("a load", "scatter world"): (1500, 0),  # entries of the index for them
    ("(three saves|a load)", MEMORY): (6000, 100),  # the index
    ("", MEMORY): (100, 100),
}
# Bytes of which each rank has (n - 1) / n, of parts padded to the same length.
SHARES = ("send world", "receive world")


class Counts(collections.namedtuple("Counts", "fewest most bytes")):
    """Calls of the ranks of a kind, and the most bytes of one."""

    def __str__(self):
        return str(self.fewest) if self.fewest == self.most else f"{self.fewest}~{self.most}"


NOTHING = Counts(0, 0, 0)


def read(directory):
    runs = collections.defaultdict(dict)
    for path in pathlib.Path(directory).iterdir():
        name, ranks = path.name.rsplit("-", 1)
        runs[name][int(ranks)] = [json.loads((path / f"rank-{rank}.json").read_text()) for rank in range(int(ranks))]
    assert {name: tuple(sorted(of)) for name, of in runs.items()} == RUNS, {name: sorted(of) for name, of in runs.items()}
    return runs


def phase_of(runs, terms, ranks, key, rank):
    """(calls, bytes) of a rank in a phase."""
    return tuple(sum(times * runs[run][ranks][rank].get(key, (0, 0))[i] for run, times in terms.items()) for i in (0, 1))


def by_name(counts):
    """Without the name of this machine and the identifier of this run."""
    named = collections.defaultdict(lambda: [0, 0])
    for key, value in counts.items():
        key = re.sub(r"\.run\.toml\..*\.partial", ".run.toml.#.partial", key)
        key = re.sub(r"\.node-check-[0-9a-f#]+", ".node-check-#", key)
        named[key] = [sum(both) for both in zip(named[key], value)]
    return dict(named)


def measured(runs):
    """{(phase, what): {ranks: (Counts of the first rank, of the others)}}."""
    runs = {run: {n: [by_name(rank) for rank in ranks] for n, ranks in of.items()} for run, of in runs.items()}
    table = collections.defaultdict(dict)
    for phase, terms in PHASES.items():
        for ranks in RUNS[next(iter(terms))]:
            counts = [rank for run in terms for rank in runs[run][ranks]]
            for key in sorted({key for rank in counts for key in rank if not key.startswith("memory")}):
                each = [phase_of(runs, terms, ranks, key, rank) for rank in range(ranks)]
                first, *others = [tuple(Counts(min(c for c, _ in some), max(c for c, _ in some), max(b for _, b in some)))
                                  for some in (each[:1], each[1:])]
                table[phase, key][ranks] = Counts(*first), Counts(*others[0])
            if phase in MEMORY_OF:
                each = [rank[MEMORY][1] for rank in runs[MEMORY_OF[phase]][ranks]]
                table[phase, MEMORY][ranks] = Counts(0, 0, each[0]), Counts(0, 0, max(each[1:]))
    return {key: by_ranks for key, by_ranks in table.items() if any(any(of) for who in by_ranks.values() for of in who)}


def columns(by_ranks):
    ranks = sorted(by_ranks)
    return [" ".join(text(by_ranks[n][who]) for n in ranks)
            for text in (str, lambda counts: str(counts.bytes)) for who in (FIRST, OTHERS)]


def written(table):
    lines = ["# Calls of the first rank, of each other one, bytes of the first rank, of another one; on 2, 8 and 32 ranks, or on 8.",
             "# Written by scale.py, with the phases and what may grow."]
    phase = None
    for (of, what), by_ranks in table.items():
        if of != phase:
            lines += ["", f"[{of}]"]
            phase = of
        lines.append(" | ".join([what, *columns(by_ranks)]))
    return "\n".join(lines) + "\n"


def parse(text):
    table, phase = {}, None
    for line in text.splitlines():
        if line.startswith("["):
            phase = line[1:-1]
        elif line and not line.startswith("#"):
            what, *numbers = line.split(" | ")
            calls, moved = ([cells.split() for cells in numbers[i:i + 2]] for i in (0, 2))
            ranks = RUNS[next(iter(PHASES[phase]))]
            table[phase, what] = {n: tuple(Counts(int(calls[who][i].split("~")[0]), int(calls[who][i].split("~")[-1]), int(moved[who][i]))
                                           for who in (FIRST, OTHERS)) for i, n in enumerate(ranks)}
    return table


def near(number, expected, what):
    """Texts contain names of machines and times; libraries allocate objects, too."""
    return abs(number - expected) <= (0.05 * abs(expected) + (65536 if what == MEMORY else 512))


def differences(counts, table):
    """What is not as the table lists it."""
    for phase, what in sorted({*counts, *table}):
        for ranks in RUNS[next(iter(PHASES[phase]))]:
            for who in (FIRST, OTHERS):
                found, listed = (of.get((phase, what), {}).get(ranks, (NOTHING, NOTHING))[who] for of in (counts, table))
                where = f"{phase} on {ranks} ranks: {what}: {WHO[who]}"
                if found[:2] != listed[:2]:
                    yield f"{where} makes {found} calls, {listed} are listed"
                if not near(found.bytes, listed.bytes, what):
                    yield f"{where} hands over {found.bytes} bytes, {listed.bytes} are listed"


def bytes_a_rank(by_ranks, who):
    """b of a + b n + c / n, which 2, 8 and 32 ranks give: shards of the model shrink with the ranks."""
    of2, of8, of32 = (by_ranks[n][who].bytes for n in (2, 8, 32))
    return ((of2 - of8) / (1 / 2 - 1 / 8) - (of8 - of32) / (1 / 8 - 1 / 32)) / ((32 - 8) / (1 / 8 - 1 / 32) - (8 - 2) / (1 / 2 - 1 / 8))


def rule_of(rules, phase, what):
    return next((rule for (of, pattern), rule in rules.items() if re.fullmatch(of or ".*", phase) and re.fullmatch(pattern, what)), None)


def growth(table):
    """What grows, and is not listed as growing."""
    for (phase, what), by_ranks in sorted(table.items()):
        calls, moved = rule_of(CALLS, phase, what), rule_of(BYTES, phase, what) or (0, 0)
        for ranks in by_ranks:
            if 2 not in by_ranks:
                continue  # a mesh on one number of ranks
            for who in (FIRST, OTHERS):
                least, most = by_ranks[2][who], by_ranks[ranks][who]
                where = f"{phase} on {ranks} ranks: {what}: {WHO[who]}"
                allowed = calls[who](least.most, ranks) if calls else least.most
                if most.most > allowed:
                    yield f"{where} makes {most} calls, {allowed} are allowed"
                limit = (least.bytes * 2 * (ranks - 1) / ranks * 1.2 if what in SHARES else
                         least.bytes + 256 + 0.02 * abs(least.bytes) + moved[who] * (ranks - 2))
                if what != MEMORY and most.bytes > limit:
                    yield f"{where} hands over {most.bytes} bytes, {limit:.0f} are allowed"
        if what == MEMORY and 2 in by_ranks:
            for who in (FIRST, OTHERS):
                if (each := bytes_a_rank(by_ranks, who)) > moved[who]:
                    yield f"{phase}: {what}: {WHO[who]} keeps {each:.0f} bytes of each rank, {moved[who]} are allowed"


def kind(what):
    """As docs/counted-calls.md sums it up."""
    call, _, of = what.partition(" ")
    if what == MEMORY:
        return "C++ objects, most at a time"
    if call in ("create", "change"):
        return "files made, changed, removed"
    if call in ("open", "look", "list"):
        return "files opened, looked at, listed"
    return {"allreduce": "all-reduces", "allgather": "all-gathers", "broadcast": "broadcasts", "gather": "gathers", "scatter": "scatters",
            "send": "messages sent", "receive": "messages received"}.get(call, "communicators made")


PAGE = """# Counted calls

Generated: `python3 tests/support/counted_calls/scale.py --markdown >docs/counted-calls.md`. Conditions:
[scale.md](scale.md#counted-calls). Three numbers are for 2, 8 and 32 ranks; one number is for all of them, or for the 8
ranks of the mixed mesh; "98 to 107" is the range over ranks.

"""


def markdown(table):
    lines = ["| phase | what | calls of the first rank | of another | bytes of the first rank | of another |", "|---|---|---|---|---|---|"]
    sums = collections.defaultdict(lambda: collections.defaultdict(lambda: [[[0, 0], 0], [[0, 0], 0]]))
    for (phase, what), by_ranks in table.items():
        for ranks, both in by_ranks.items():
            for who, counts in zip(sums[phase, kind(what)][ranks], both):
                who[0] = [who[0][0] + counts.fewest, who[0][1] + counts.most]
                who[1] += counts.bytes
    for (phase, what), by_ranks in sums.items():
        cells = [[of[who][i] for of in by_ranks.values()] for i in (0, 1) for who in (FIRST, OTHERS)]
        texts = [[str(cell[0]) if cell[0] == cell[1] else "{} to {}".format(*cell) for cell in cells[who]] for who in (FIRST, OTHERS)]
        texts += [[f"{cell:,}" for cell in cells[2 + who]] for who in (FIRST, OTHERS)]
        row = [text[0] if len(set(text)) == 1 else "; ".join(text) for text in texts]
        lines.append(f"| {phase} | {what} | " + " | ".join("" if text == "0" else text for text in row) + " |")
    return PAGE + "\n".join(lines) + "\n"


def mistakes(counts, table):
    return [*differences(counts, table), *growth(counts), *growth(table)]


def main(arguments):
    if arguments == ["--markdown"]:
        print(markdown(parse((HERE / "table.txt").read_text())), end="")
        return 0
    counts = measured(read(arguments[0]))
    if len(arguments) > 1:
        pathlib.Path(arguments[1]).write_text(written(counts))
        return 0
    found = mistakes(counts, parse((HERE / "table.txt").read_text()))
    print("\n".join(found) or "as listed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
