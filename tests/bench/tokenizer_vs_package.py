#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speed of `trireme tokenize` with GPT-2's pattern on one core, beside the `tokenizers` package in the same run.

tokenizer_vs_package.py PROGRAM      prints MB/s of both and the ratio; the program's start, load and writing are included

Needs the Python environment of tests/support/python.sh (${TRIREME_CACHE:-~/.cache/trireme}/peer-torch-2.11.0)."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROUNDS = 3


def main():
    cache = pathlib.Path(os.environ.get("TRIREME_CACHE", pathlib.Path.home() / ".cache/trireme"))
    python = [cache / "peer-torch-2.11.0/bin/python", ROOT / "tests/tokenizer/peer.py"]
    core = {min(os.sched_getaffinity(0))}
    os.sched_setaffinity(0, core)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        subprocess.run([*python, "make", work / "made", "20"], check=True)
        text = b"".join(path.read_bytes() for path in sorted((work / "made/texts").iterdir()))
        (work / "text").write_bytes(text)
        ours, theirs = [], []
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            command = [sys.argv[1], "tokenize", "--tokenizer", f"hf:{work}/made/gpt2", "-o", work / "out.bin", work / "text"]
            subprocess.run(command, check=True, capture_output=True)
            ours.append(len(text) / (time.perf_counter() - begin) / 1e6)
            done = subprocess.run([*python, "rate", work / "made/gpt2/tokenizer.json", work / "text"], check=True, capture_output=True)
            theirs.append(float(done.stdout) / 1e6)
    for name, rates in (("trireme", ours), ("tokenizers", theirs)):
        print(f"{name:10} {max(rates):6.1f} MB/s on one core ({', '.join(f'{rate:.1f}' for rate in rates)})")
    print(f"{'ratio':10} {max(ours) / max(theirs):6.1f}")


main()
