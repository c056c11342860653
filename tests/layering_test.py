#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the sources to the rules of their layout. Run without arguments: first the rules are tested on planted mistakes,
then the repository is checked. `layering_test.py DIRECTORY` checks another tree; `--folders` lists the files per folder.

The rules:
- A layer includes itself and the layers before it in LAYERS; a folder of a layer, itself and those before it in FOLDERS.
- Folders do not include each other in a circle, whatever the tables say.
- A header in include/ is there for programs that are built on an installed Trireme, or for another layer: it includes no
  header that is private to src/.
- The value layers use no third-party library but fmt, toml++ and nlohmann-json.
- The first lines carry the SPDX licence line.
A file longer than 500 lines is listed as a warning: a file holds one concept with everything that belongs to it."""

import collections
import pathlib
import re
import sys
import tempfile

VALUES = "base mesh config model shard optimizer schedule planner huggingface report".split()
LAYERS = (
    VALUES
    + """device mpi supervise comm kernels store nn optim tokenizer data timeline executor checkpoint train cli""".split()
)
# The folders of a layer, "." for the layer's own, each of which may include those before it. Layers without an entry have
# none but cuda/.
FOLDERS = {
    "base": ". io",
    "model": ". architectures",
    "schedule": ". verbs verify passes pipeline",
    "huggingface": "multimodal .",
    "planner": ". time validate search compare job",
    "comm": "node . cuda",
    "kernels": ". simd gemm host cuda cuda/experts cuda/loss",
    "executor": ". device",
    "tokenizer": "text model hf .",
    "data": "text .",
    "checkpoint": ". save load",
    "train": "engine record console setup save .",
    "cli": "start inference . init pages supervise doctor front",
}
VALUE_LIBRARIES = ("fmt/", "toml++/", "nlohmann/")
GENERATED = ("git_hash.hpp",)
LONG_FILE = 500  # lines
SOURCES = (".cpp", ".hpp", ".h", ".cu", ".cuh")
SCRIPTS = (".py", ".sh")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SPDX = "SPDX-License-Identifier: Apache-2.0"


def place_of(path):
    """(layer, folder) of a source or header by its path, or None: src/<layer>/[<folder>/]x, include/trireme/<layer>/..."""
    parts = pathlib.PurePath(path).parts
    if parts[0] == "src" and len(parts) > 2 and parts[1] != "cmake":
        parts = parts[1:-1]
    elif parts[:2] == ("include", "trireme") and len(parts) > 3:
        parts = parts[2:-1]
    else:
        return None
    return parts[0], "/".join(parts[1:]) or "."


def folders_of(layer):
    return FOLDERS.get(layer, ". cuda").split()


def included_place(name):
    """(layer, folder) of what an include names: trireme/<layer>/x.hpp, or <layer>/x.hpp for a header that is private to src/."""
    parts = name.split("/")
    if parts[0] == "trireme":
        return place_of("include/" + name) if len(parts) > 2 else None
    return place_of("src/" + name) if len(parts) > 1 and parts[0] in LAYERS else None


def include_mistakes(place, public, quote, name, beside):
    """The mistake in one include of a file at `place`; `public`: the file is in include/; `beside`: the name is a file next to it."""
    layer, folder = place
    target = included_place(name)
    if target is not None:
        if target[0] not in LAYERS:
            yield f"includes {name}: there is no layer '{target[0]}'"
        elif LAYERS.index(target[0]) > LAYERS.index(layer):
            yield f"includes {name}: {layer} may not see {target[0]}, which lies below it"
        elif target[0] == layer and target[1] not in folders_of(layer):
            yield f"includes {name}: {layer} has no folder '{target[1]}' in FOLDERS"
        elif target[0] == layer and folders_of(layer).index(target[1]) > folders_of(layer).index(folder):
            yield f"includes {name}: {layer}/{folder} may not see {layer}/{target[1]}, which lies below it"
        if public and not name.startswith("trireme/"):
            yield f"includes {name}, which is not installed"
    elif layer in VALUES and not beside and name not in GENERATED:
        standard = quote == "<" and re.fullmatch(r"[a-z_0-9]+|(sys/|linux/)?[a-z_0-9]+\.h", name)
        forbidden = name in ("mpi.h", "omp.h", "hdf5.h", "xxhash.h", "cuda_runtime.h", "nccl.h")
        if forbidden or not (standard or name.startswith(VALUE_LIBRARIES)):
            yield f"includes {name}: the value layers use the standard library, fmt, toml++ and nlohmann-json only"


def circles(includes):
    """Strongly connected groups of more than one folder. includes: folder -> folders (Tarjan 1972)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(includes.get(node, ())):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(includes):
        if node not in index:
            visit(node)
    return found


def shown_folder(place):
    return place[0] if place[1] == "." else "/".join(place)


def crowded(root):
    """Every folder of src, include and tests with its number of files, subfolders not counted."""
    for top in ("src", "include", "tests"):
        for folder in sorted(p for p in [root / top, *(root / top).rglob("*")] if p.is_dir() and p.name != "__pycache__"):
            files = sum(p.is_file() for p in folder.iterdir())
            if files:
                yield folder.relative_to(root), files


def mistakes(root):
    """Every mistake in src, include and tests below root, as lines `path:line: what`."""
    edges = collections.defaultdict(set)
    for folder in ("src", "include", "tests"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in SOURCES + SCRIPTS:
                continue
            shown = path.relative_to(root)
            lines = path.read_text(encoding="utf-8").splitlines()
            if not any(SPDX in line for line in lines[:2]):
                yield f"{shown}:1: the first line is not '// {SPDX}', nor '# {SPDX}'"
            if folder == "tests" or path.suffix in SCRIPTS:
                continue
            place = place_of(shown)
            if place is None or place[0] not in LAYERS:
                yield f"{shown}:1: lies in no layer (src/<layer>/x.cpp, include/trireme/<layer>/x.hpp)"
                continue
            if place[1] not in folders_of(place[0]):
                yield f"{shown}:1: lies in no folder that FOLDERS lists for {place[0]}"
                continue
            for number, line in enumerate(lines, 1):
                match = INCLUDE.match(line)
                if match:
                    beside = match[1] == '"' and (path.parent / match[2]).is_file()
                    target = included_place(match[2])
                    if target is not None and target != place:
                        edges[shown_folder(place)].add(shown_folder(target))
                    for mistake in include_mistakes(place, folder == "include", match[1], match[2], beside):
                        yield f"{shown}:{number}: {mistake}"
    for group in circles(edges):
        yield f"{group[0]}: includes itself in a circle through {', '.join(group[1:])}"


def long_files(root):
    """(path, lines) of every source, test and script with more than LONG_FILE lines."""
    for folder in ("src", "include", "tests"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SOURCES + SCRIPTS:
                lines = len(path.read_text(encoding="utf-8").splitlines())
                if lines > LONG_FILE:
                    yield path.relative_to(root), lines


# Planted includes, and a part of the expected message (None: allowed).
PLANTED = [
    ("src/base/a.cpp", '#include "trireme/mesh/mesh.hpp"', "base may not see mesh"),
    ("include/trireme/schedule/a.hpp", '#include "trireme/planner/a.hpp"', "schedule may not see planner"),
    ("include/trireme/planner/a.hpp", "#include <trireme/device/memory.hpp>", "planner may not see device"),
    ("src/nn/a.cpp", '#  include "trireme/executor/a.hpp"', "nn may not see executor"),
    ("src/nn/b.cpp", '#include "executor/private.hpp"', "nn may not see executor"),
    ("src/nn/c.cpp", '#include "trireme/nowhere/a.hpp"', "no layer 'nowhere'"),
    ("src/schedule/a.cpp", '#include "trireme/schedule/passes/a.hpp"', "schedule/. may not see schedule/passes"),
    ("src/schedule/verify/a.cpp", '#include "schedule/passes/a.hpp"', "schedule/verify may not see schedule/passes"),
    ("src/train/engine/a.cpp", '#include "train/run.hpp"', "train/engine may not see train/."),
    ("src/train/run.cpp", '#include "train/nowhere/a.hpp"', "train has no folder 'nowhere'"),
    ("src/train/nowhere/a.cpp", "", "lies in no folder"),
    ("src/comm/a.cpp", '#include "comm/cuda/nccl.hpp"', "comm/. may not see comm/cuda"),
    ("include/trireme/nn/a.hpp", '#include "nn/private.hpp"', "not installed"),
    ("src/config/a.cpp", "#include <mpi.h>", "value layers use"),
    ("src/mesh/a.cpp", "#include <ATen/ATen.h>", "value layers use"),
    ("src/mesh/b.cpp", "#include <Kokkos_Core.hpp>", "value layers use"),
    ("src/mesh/c.cpp", '#include "hdf5.h"', "value layers use"),
    ("src/helpers/a.cpp", "", "lies in no layer"),
    ("src/base/long.cpp", "\n" * LONG_FILE, None),
    ("src/executor/fine.cpp", '#include <mpi.h>\n#include "trireme/base/error.hpp"\n#include "trireme/executor/a.hpp"', None),
    ("src/config/fine.cpp", "#include <toml++/toml.h>\n#include <fmt/core.h>\n#include <vector>\n#include <unistd.h>", None),
    ("include/trireme/base/fine.hpp", "#include <source_location>", None),
    ("src/schedule/passes/fine.cpp", '#include "trireme/schedule/op.hpp"\n#include "schedule/verify/a.hpp"', None),
    ("src/optim/cuda/fine.cpp", '#include "kernels/cuda/launchers.hpp"\n#include "optim/device.hpp"', None),
    ("src/cli/main.cpp", '#include "trireme/train/a.hpp"', None),
]


def test_planted():
    """The rules find each planted mistake, and nothing in what is fine."""
    for path, text, expected in PLANTED:
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory)
            file = root / path
            file.parent.mkdir(parents=True)
            file.write_text(f"// {SPDX}\n{text}\n")
            found = list(mistakes(root))
            right = found == [] if expected is None else len(found) == 1 and expected in found[0]
            assert right, f"{path} with {text.strip()!r}: expected {expected!r}, found {found}"
            file.write_text("#pragma once\n")
            assert any("first line" in mistake for mistake in mistakes(root)), f"{path}: a missing licence line went unseen"
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]
    assert not circles({"a": {"b", "c"}, "b": {"c"}})
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        (root / "tests").mkdir()
        (root / "tests/a.py").write_text("\n" * LONG_FILE)
        assert not list(long_files(root))
        (root / "tests/a.py").write_text("\n" * (LONG_FILE + 1))
        assert [lines for _, lines in long_files(root)] == [LONG_FILE + 1], "a long file went unseen"


def main():
    arguments = sys.argv[1:]
    folders = "--folders" in arguments
    root = pathlib.Path(next((a for a in arguments if a != "--folders"), pathlib.Path(__file__).parent.parent))
    if folders:
        for folder, files in crowded(root):
            print(f"{files:4} {folder}")
        return 0
    test_planted()
    for path, lines in long_files(root):
        print(f"layering: warning: {path} has {lines} lines: does it hold one concept?")
    found = list(mistakes(root))
    print("\n".join(found) or f"layering: {root}: no mistakes; {len(PLANTED)} planted ones were judged rightly")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
