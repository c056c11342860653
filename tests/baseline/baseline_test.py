#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A comparison of two recordings finds what was changed, and nothing in equal ones. Needs no build."""

import contextlib
import copy
import io
import json
import pathlib
import sys
import tempfile

import baseline

SECTIONS = {
    "configurations": {
        "configuration 0": ["forward b0 m0", "need unshard b0 => forward b0 m0, distance 0, read after write", "total 12"],
        "configuration 1": ["need unshard b0 => forward b0 m0, distance 0, read after write", "total 13"],
    },
    "runs": {f"run {i}": [f"rank 0: masters {i:016x}, first moments 00, second moments 01"] for i in range(3)},
    "launches": {"Llama": [f"stream {i % 2}: aten::mm Float[{i}, 8]" for i in range(6000)]},
    "times": {"quickstart": ["median 0.1 s"]},
}


def write(directory: pathlib.Path, parts: dict[str, baseline.Sections]) -> pathlib.Path:
    directory.mkdir()
    for part, sections in parts.items():
        baseline.write(directory / f"{part}.txt.gz", sections)
    about = {"version": "trireme 0", "build": "build", "date": "today", "cpu": "a CPU", "cores": 2}
    (directory / "about.json").write_text(json.dumps(about))
    return directory


def compared(change) -> tuple[int, str]:
    """Differing parts and the text printed for SECTIONS and a changed copy."""
    other = copy.deepcopy(SECTIONS)
    change(other)
    with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stdout(io.StringIO()) as text:
        root = pathlib.Path(scratch)
        differing = baseline.compare(write(root / "a", SECTIONS), write(root / "b", other))
    return differing, text.getvalue()


def main() -> int:
    differing, text = compared(lambda parts: None)
    assert differing == 0 and "runs: 3 of 3 sections are equal, 0 differences" in text, text

    differing, text = compared(lambda parts: parts["configurations"]["configuration 0"].pop(1))
    edge = "-need unshard b0 => forward b0 m0, distance 0, read after write    (configuration 0)"
    assert differing == 1 and edge in text and "configurations: 1 of 2 sections are equal, 1 differences" in text, text

    def one_bit(parts):
        parts["runs"]["run 1"] = [line.replace("0000000000000001", "0000000000000003") for line in parts["runs"]["run 1"]]

    differing, text = compared(one_bit)
    assert differing == 1 and "+rank 0: masters 0000000000000003" in text and "2 of 3 sections" in text, text

    # A change that all sections share is printed once.
    def every_section(parts):
        for lines in parts["configurations"].values():
            lines.append("sync.new = 1")

    differing, text = compared(every_section)
    assert differing == 1 and text.count("sync.new") == 1 and "(2 sections, such as configuration 0)" in text, text

    differing, text = compared(lambda parts: parts["runs"].pop("run 2"))
    assert differing == 1 and "only in the first: run 2" in text, text
    differing, text = compared(lambda parts: parts["runs"].update({"run 3": []}))
    assert differing == 1 and "only in the second: run 3" in text, text

    # Long sections: a launch less, and two launches exchanged.
    differing, text = compared(lambda parts: parts["launches"]["Llama"].pop(5000))
    assert differing == 1 and "-stream 0: aten::mm Float[5000, 8]" in text and " 1 differences" in text, text
    differing, text = compared(lambda parts: parts["launches"]["Llama"].insert(0, parts["launches"]["Llama"].pop()))
    assert differing == 1 and "another order of the same lines" in text, text

    differing, text = compared(lambda parts: parts["times"]["quickstart"].append("median 9 s"))
    assert differing == 0 and "median 9 s" in text, text
    assert len({str(mesh) for mesh in baseline.meshes()}) == 40
    print("baseline: differences are found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
