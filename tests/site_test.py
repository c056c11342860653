#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the documentation as a site (.mkdocs.yml), strictly: every page is in the navigation, every link has its target, every
layer of include/trireme has a page of declarations.
Takes MkDocs from an environment in ${TRIREME_CACHE:-~/.cache/trireme}, made at the first run by pip; skipped without."""

import fcntl
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent
MKDOCS = "1.6.1"
SKIPPED = 77


def run(*command: str | pathlib.Path, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=240, **options)


def make_environment(home: pathlib.Path) -> str:
    """The environment in `home`, unless it is complete. Returns why it could not be made, or nothing."""
    if (home / "ready").exists():
        return ""
    home.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{home}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (home / "ready").exists():
            return ""
        install = (home / "bin/python", "-m", "pip", "install", "--quiet", "--retries", "1", "--timeout", "15", f"mkdocs=={MKDOCS}")
        for command in ((sys.executable, "-m", "venv", "--clear", home), install):
            try:
                done = run(*command)
            except subprocess.TimeoutExpired:
                return f"{command[0]} did not end in time"
            if done.returncode != 0:
                return (done.stdout.strip().splitlines() or ["no message"])[-1]
        (home / "ready").touch()
    return ""


def built(home: pathlib.Path, source: pathlib.Path, site: pathlib.Path) -> subprocess.CompletedProcess[str]:
    # Not --quiet: --strict counts the warnings that are printed.
    return run(home / "bin/mkdocs", "build", "--strict", "-f", source / ".mkdocs.yml", "-d", site)


def main() -> int:
    cache = pathlib.Path(os.environ.get("TRIREME_CACHE") or pathlib.Path.home() / ".cache/trireme")
    home = cache / f"mkdocs-{MKDOCS}"
    if why := make_environment(home):
        print(f"skipped: no environment with mkdocs {MKDOCS} could be made in {home}: {why}")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        site = pathlib.Path(folder) / "site"
        done = built(home, SOURCE, site)
        pages = [path.relative_to(SOURCE / "docs").with_suffix(".html") for path in (SOURCE / "docs").rglob("*.md")]
        pages += [pathlib.Path("headers", path.name).with_suffix(".html") for path in (SOURCE / "include/trireme").iterdir()]  # site_hooks
        missing = [page for page in pages if not (site / page).exists() and not (site / page.with_name("index.html")).exists()]
        print(*([done.stdout] if done.returncode else []), f"{len(pages)} pages", *(f"{page} was not built" for page in missing), sep="\n")
        if done.returncode != 0 or missing:
            return 1
        # A link without a target and a page outside of the navigation fail.
        copy = pathlib.Path(folder) / "copy"
        (copy / "docs").mkdir(parents=True)
        (copy / ".mkdocs.yml").write_text((SOURCE / ".mkdocs.yml").read_text().split("\nnav:")[0] + "\nnav:\n  - Overview: README.md\n")
        for text, fails in (("# A\n", False), ("# A\n[x](none.md)\n", True)):
            (copy / "docs/README.md").write_text(text)
            done = built(home, copy, site)
            if (done.returncode != 0) != fails:
                print(f"mkdocs ended with {done.returncode} on {text!r}:", done.stdout, sep="\n")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
