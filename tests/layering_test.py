#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the sources to the rules of their layout. Run without arguments: first the rules are tested on planted mistakes,
then the repository is checked. `layering_test.py DIRECTORY` checks another tree.

The rules: a layer includes itself and the layers above it only; the value layers use no third-party library but fmt,
toml++ and nlohmann-json; no source is longer than 400 lines; the first lines carry the SPDX licence line."""

import pathlib
import re
import sys
import tempfile

LAYERS = """base config mesh model shard schedule planner
            device comm kernels store nn optim data executor checkpoint train cli""".split()
VALUES = LAYERS[: LAYERS.index("planner") + 1]
VALUE_LIBRARIES = ("fmt/", "toml++/", "nlohmann/")
GENERATED = ("git_hash.hpp",)
MAX_LINES = 400
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SPDX = "SPDX-License-Identifier: Apache-2.0"


def layer_of(root, path):
    """The layer that a source or header belongs to, or None: src/<layer>/..., include/trireme/<layer>/..."""
    parts = path.relative_to(root).parts
    if parts[0] == "src" and len(parts) > 2 and parts[1] != "cmake":
        return parts[1]
    if parts[:2] == ("include", "trireme") and len(parts) > 3:
        return parts[2]
    return None


def included_layer(name):
    """The layer that an include names: trireme/<layer>/x.hpp, or <layer>/x.hpp for a header that is private to src/."""
    parts = name.split("/")
    if parts[0] == "trireme":
        return parts[1] if len(parts) > 2 else None
    return parts[0] if len(parts) > 1 and parts[0] in LAYERS else None


def include_mistakes(layer, quote, name, beside):
    """What is wrong with one include of a file in `layer`; `beside` says whether the name is a file next to it."""
    target = included_layer(name)
    if target is not None:
        if target not in LAYERS:
            yield f"includes {name}: there is no layer '{target}'"
        elif LAYERS.index(target) > LAYERS.index(layer):
            yield f"includes {name}: {layer} may not see {target}, which lies below it"
    elif layer in VALUES and not beside and name not in GENERATED:
        standard = quote == "<" and re.fullmatch(r"[a-z_0-9]+|(sys/)?[a-z_0-9]+\.h", name)
        forbidden = name in ("mpi.h", "omp.h", "hdf5.h", "xxhash.h", "cuda_runtime.h", "nccl.h")
        if forbidden or not (standard or name.startswith(VALUE_LIBRARIES)):
            yield f"includes {name}: the value layers use the standard library, fmt, toml++ and nlohmann-json only"


def mistakes(root):
    """Every mistake in src, include and tests below root, as lines `path:line: what`."""
    for folder in ("src", "include", "tests"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".cpp", ".hpp", ".h", ".cu", ".cuh"):
                continue
            shown = path.relative_to(root)
            lines = path.read_text(encoding="utf-8").splitlines()
            if not any(SPDX in line for line in lines[:2]):
                yield f"{shown}:1: the first line is not '// {SPDX}'"
            if folder == "tests":
                continue
            if len(lines) > MAX_LINES:
                yield f"{shown}:{len(lines)}: {len(lines)} lines; split it, {MAX_LINES} is the most"
            layer = layer_of(root, path)
            if layer not in LAYERS:
                yield f"{shown}:1: lies in no layer (src/<layer>/x.cpp, include/trireme/<layer>/x.hpp)"
                continue
            for number, line in enumerate(lines, 1):
                match = INCLUDE.match(line)
                if match:
                    beside = match[1] == '"' and (path.parent / match[2]).is_file()
                    for mistake in include_mistakes(layer, match[1], match[2], beside):
                        yield f"{shown}:{number}: {mistake}"


# What is planted, and a part of the message that must come (None: it is fine).
PLANTED = [
    ("src/base/a.cpp", '#include "trireme/mesh/mesh.hpp"', "base may not see mesh"),
    ("include/trireme/schedule/a.hpp", '#include "trireme/planner/a.hpp"', "schedule may not see planner"),
    ("include/trireme/planner/a.hpp", "#include <trireme/device/memory.hpp>", "planner may not see device"),
    ("src/nn/a.cpp", '#  include "trireme/executor/a.hpp"', "nn may not see executor"),
    ("src/nn/b.cpp", '#include "executor/private.hpp"', "nn may not see executor"),
    ("src/nn/c.cpp", '#include "trireme/nowhere/a.hpp"', "no layer 'nowhere'"),
    ("src/config/a.cpp", "#include <mpi.h>", "value layers use"),
    ("src/mesh/a.cpp", "#include <ATen/ATen.h>", "value layers use"),
    ("src/mesh/b.cpp", "#include <Kokkos_Core.hpp>", "value layers use"),
    ("src/mesh/c.cpp", '#include "hdf5.h"', "value layers use"),
    ("src/helpers/a.cpp", "", "lies in no layer"),
    ("src/base/long.cpp", "\n" * MAX_LINES, "split it"),
    ("src/executor/fine.cpp", '#include <mpi.h>\n#include "trireme/base/error.hpp"\n#include "trireme/executor/a.hpp"', None),
    ("src/config/fine.cpp", "#include <toml++/toml.h>\n#include <fmt/core.h>\n#include <vector>\n#include <unistd.h>", None),
    ("include/trireme/base/fine.hpp", "#include <source_location>", None),
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


def main():
    test_planted()
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    found = list(mistakes(root))
    print("\n".join(found) or f"layering: {root}: no mistakes; {len(PLANTED)} planted ones were judged rightly")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
