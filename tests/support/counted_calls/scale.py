# SPDX-License-Identifier: Apache-2.0
"""scale.py DIRECTORY: what DIRECTORY/<run>-<ranks>/rank-<r>.json count must not grow with the ranks, but for what is listed here.

Prints what each phase of a run costs, for docs/scale.md, and everything that grows."""

import collections
import json
import pathlib
import re
import sys

# Calls that grow, and how: of the first rank, of each other one.
CALLS = {
    # One message to and from each other rank for every reduction: bandwidth-optimal, sums in the order of the ranks.
    r"send world|receive world": (lambda of2, n: of2 * (n - 1), lambda of2, n: of2 * (n - 1)),
    # Of a checkpoint that is loaded, one rank looks at every file's size: it decides which checkpoint is whole.
    r"look all#/checkpoints/step-#/shards/.*": (lambda of2, n: of2 - 2 + n, lambda of2, n: of2),
    # Of a checkpoint that is removed, one rank unlinks every file.
    r"change keep#-of-#/checkpoints/\.step-#\.removed/shards/.*": (lambda of2, n: of2 - 2 + n, lambda of2, n: of2),
}
# Bytes that grow by so many for each rank at most: of the first rank, of each other one.
BYTES_A_RANK = {
    "allgather world": (4000, 4000),  # shards are padded to the same length
    "gather world": (4000, 0),  # what the index says of a rank's file; step times by rank
    "broadcast world": (2000, 2000),  # the index of a checkpoint that is loaded
}
# Bytes of which each rank has (n - 1) / n.
SHARES = ("send world", "receive world")
MEMORY = 1.15  # of 32 ranks over 2: mostly what MPI keeps of each peer


def read(directory):
    runs = collections.defaultdict(dict)
    for path in pathlib.Path(directory).iterdir():
        name, ranks = path.name.rsplit("-", 1)
        runs[name][int(ranks)] = [json.loads((path / f"rank-{rank}.json").read_text()) for rank in range(int(ranks))]
    return runs


def of(counts, key, which):
    """(fewest, most) of all other ranks, or of the first one."""
    values = [rank.get(key, (0, 0)) for rank in (counts[1:] if which else counts[:1])]
    return [(min(v[i] for v in values), max(v[i] for v in values)) for i in (0, 1)]


def mistakes_of(run, by_ranks):
    least = min(by_ranks)
    for key in sorted({key for counts in by_ranks.values() for rank in counts for key in rank}):
        grows = next((rule for pattern, rule in CALLS.items() if re.fullmatch(pattern, key)), None)
        for ranks, counts in by_ranks.items():
            for which, who in enumerate(("the first rank", "another rank")):
                (base, base_most), (base_bytes, _) = of(by_ranks[least], key, which)
                (fewest, most), (_, most_bytes) = of(counts, key, which)
                allowed = grows[which](base_most, ranks) if grows else base_most
                # A rank may have nothing to read: padding.
                spare = re.fullmatch(r"(open|look) .*/shards/.*", key) and which == 1
                if most != allowed or (fewest != allowed and not spare):
                    yield f"{run} on {ranks} ranks: {key}: {who} makes {fewest} to {most} calls, {allowed} are allowed"
                if key == "memory peak":
                    limit = MEMORY * base_bytes
                elif key in SHARES:
                    limit = base_bytes * (ranks - 1) / ranks * least / (least - 1) * 1.2
                else:
                    limit = base_bytes * 1.15 + BYTES_A_RANK.get(key, (0, 0))[which] * (ranks - least)
                if most_bytes > limit:
                    yield f"{run} on {ranks} ranks: {key}: {who} hands over {most_bytes} bytes, {limit:.0f} are allowed"


def cost(runs, ranks):
    """What each phase costs: {phase: {key: (calls and bytes of the first rank, of another one)}}."""
    def row(name, which):
        return {key: values for key, values in runs[name][ranks][which].items()}

    def minus(a, b, times=1):
        return {key: tuple((x - y) / times for x, y in zip(a.get(key, (0, 0)), b.get(key, (0, 0)))) for key in {*a, *b}}

    phases = {}
    for which in (0, 1):
        start, steps, evaluation, save, resume, whole, removal, kept = (
            {re.sub("^(.*? )[a-z]+#", r"\1out", k): v for k, v in row(name, which).items()}
            for name in ("start", "steps", "evaluation", "save", "resume", "all", "keep1", "keep2"))
        step = minus(steps, start, 2)
        phases[which] = {"start and stop": minus(start, step), "step": step, "evaluation": minus(evaluation, steps),
                         "save": minus(save, steps), "load": minus(resume, start), "removal": minus(removal, kept)}
    return phases


def group(key):
    """MPI calls by name; calls for files by what they do and to what."""
    call, _, what = key.partition(" ")
    if call in ("open", "create", "look", "list", "change"):
        return f"{'files changed' if call in ('create', 'change') else 'files opened, looked at, listed'}"
    return f"{call}s" if what in ("world", "group", "self") else None


def table(runs, ranks):
    phases = cost(runs, ranks)
    for phase in phases[0]:
        lines = collections.defaultdict(lambda: [[0, 0], [0, 0]])
        for which in (0, 1):
            for key, (calls, moved) in phases[which][phase].items():
                if name := group(key):
                    lines[name][which][0] += calls
                    lines[name][which][1] += moved
        for name, ((calls, moved), (others, others_moved)) in sorted(lines.items()):
            if calls or others:
                print(f"{ranks:3} ranks  {phase:15} {name:32} first rank {calls:6.0f} calls {moved:9.0f} bytes, "
                      f"another {others:6.0f} calls {others_moved:9.0f} bytes")


def main(directory):
    runs = read(directory)
    assert {name: sorted(of) for name, of in runs.items()} == {
        **dict.fromkeys(("start", "steps", "evaluation", "save", "keep1", "keep2"), [2, 8]), **dict.fromkeys(("all", "resume"), [2, 8, 32])}
    for ranks in (2, 8):
        table(runs, ranks)
    mistakes = [mistake for run, by_ranks in sorted(runs.items()) for mistake in mistakes_of(run, by_ranks)]
    print("\n".join(mistakes) or "nothing else grows")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
