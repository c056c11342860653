# SPDX-License-Identifier: Apache-2.0
"""Checks that what a rename publishes is on the disk before it, and the rename itself after it.

    durable.py LOG PATTERN COUNT [ORDERED...]

LOG is what system_calls.cpp wrote. Exactly COUNT renames have a target that matches the regular expression PATTERN; for each
of them: every file below its source was flushed, by each process that wrote it and after its last write; every directory
below it after the last change of its entries; the directory that holds the target after the rename, before the next
change in it, and those above it that were made, in the ones that hold them, before the rename. ORDERED are regular
expressions for files below the source: those of one are all flushed before any of the next is created. Prints every
violation; exit code 1 if there is one.
"""
import os
import re
import sys

log, pattern, count, ordered = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
calls = [line.rstrip("\n").split(" ")[1:] for line in open(log)]  # process, call, path, [path]
violations = []


def below(path, root):
    return path == root or path.startswith(root + "/")


def next_call(kind, path, begin, end, process=None):
    """The first such call in calls[begin:end]; none: nothing."""
    for i in range(begin, end):
        if calls[i][1] == kind and calls[i][2] == path and process in (None, calls[i][0]):
            return i
    return None


def check(at):
    process, _, source, target = calls[at]
    # Names are used again: of the next save, or after one that failed. Its directory was made last.
    begin = max([i for i in range(at) if calls[i][1] in ("mkdir", "create") and calls[i][2] == source] or [0])
    last_write, last_entry, created, flushed, flushed_before = {}, {}, {}, {}, {}
    for i in range(begin, at):
        writer, call, path = calls[i][:3]
        if call in ("rename", "unlink", "create", "mkdir"):
            for name in calls[i][2:]:
                if below(os.path.dirname(name), source):
                    last_entry[os.path.dirname(name)] = i
        if not below(path, source):
            continue
        if call == "mkdir":
            last_entry.setdefault(path, i)
        elif call == "create":
            created.setdefault(path, i)
            last_write[(path, writer)] = max(i, last_write.get((path, writer), 0))
        elif call in ("write", "truncate"):
            last_write[(path, writer)] = i
        elif call == "rename" and path != source:  # a file below it gets its name
            renamed = calls[i][3]
            for (name, by), when in list(last_write.items()):
                if name == path:
                    last_write[(renamed, by)] = when
                    flushed_before[(renamed, by)] = next_call("fsync", name, when, i, by)
                    del last_write[(name, by)]
        elif call == "unlink":
            last_write = {key: when for key, when in last_write.items() if key[0] != path}
    if not last_write:
        violations.append(f"{target}: nothing was written below {source}")
    for (path, writer), when in last_write.items():
        done = flushed_before.get((path, writer)) or next_call("fsync", path, when, at, writer)
        if done is None:
            violations.append(f"{target}: {path}, written by {writer}, is not flushed before the rename")
        flushed[path] = max(done or at, flushed.get(path) or 0)
    for path, when in last_entry.items():
        if next_call("fsync", path, when, at) is None:
            violations.append(f"{target}: the directory {path} is not flushed before the rename")
    for before, after in zip(ordered, ordered[1:]):
        first = [flushed[path] for path in flushed if re.search(before, path)]
        second = [when for path, when in created.items() if re.search(after, path)]
        if not first or not second:
            violations.append(f"{target}: no file {before} or {after}")
        elif max(first) > min(second):
            violations.append(f"{target}: {after} is created before {before} is flushed")
    parent = os.path.dirname(target)
    made = parent
    while made != os.path.dirname(made) and ".partial" not in made:
        first = next_call("mkdir", made, 0, at)
        if first is not None and next_call("fsync", os.path.dirname(made), first, at) is None:
            violations.append(f"{target}: the entry of {made}, made for it, is not flushed before the rename")
        made = os.path.dirname(made)
    changes = [i for i in range(at + 1, len(calls))
               if calls[i][1] in ("create", "mkdir", "rename", "unlink") and below(calls[i][2], parent)]
    if next_call("fsync", parent, at, min(changes or [len(calls)]), process) is None:
        violations.append(f"{target}: its directory is not flushed right after the rename")


renames = [i for i, call in enumerate(calls) if call[1] == "rename" and re.search(pattern, call[3])]
if len(renames) != count:
    violations.append(f"{len(renames)} renames to {pattern}, expected {count}")
for rename in renames:
    check(rename)
print("\n".join(violations))
sys.exit(1 if violations else 0)
