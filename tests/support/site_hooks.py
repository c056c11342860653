# SPDX-License-Identifier: Apache-2.0
"""Hooks of the documentation's site (.mkdocs.yml): a page of C++ declarations for each layer, from include/trireme."""

import pathlib
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

SOURCE = pathlib.Path(__file__).resolve().parents[2]
HEADERS = SOURCE / "include/trireme"


def prose(comment: str) -> str:
    """The text of comment lines, for Markdown."""
    text = " ".join(line.removeprefix("///").strip() for line in comment.splitlines())
    return re.sub(r"([<>*_\[\]])", r"\\\1", text)


def declaration(text: str) -> str:
    """A declaration with its arguments on one line, without attributes."""
    code = re.split(r";|(?<!=) \{| : public|\n\n", text, maxsplit=1)[0]
    if code.startswith("inline constexpr"):
        code = re.split(r"\{| = ", code, maxsplit=1)[0]
    return re.sub(r"\s+", " ", code.replace("[[nodiscard]] ", "")).strip()


def declarations(header: str) -> list[tuple[str, str]]:
    """Declarations of namespaces with their comments."""
    found = []
    for match in re.finditer(r"((?:^///.*\n)+)(?=[^\s/#}])", header, re.M):
        rest = header[match.end() :]
        if not rest.startswith("namespace"):
            found.append((declaration(rest[:2000]), prose(match[1])))
    return found


def page(layer: str) -> str:
    out = [f"# {layer}\n"]
    for path in sorted((HEADERS / layer).rglob("*.hpp")):
        text = path.read_text()
        out.append(f"\n## {path.relative_to(HEADERS)}\n")
        if about := re.search(r"((?:^///.*\n)+)namespace", text, re.M):
            out.append(f"\n{prose(about[1])}\n")
        for code, comment in declarations(text):
            out.append(f"\n    {code}\n\n{comment}\n")
    return "".join(out)


def layers() -> list[str]:
    return sorted(path.name for path in HEADERS.iterdir() if path.is_dir())


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    if config.nav:
        config.nav.append({"C++ headers": [{layer: f"headers/{layer}.md"} for layer in layers()]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for layer in layers():
        files.append(File.generated(config, f"headers/{layer}.md", content=page(layer)))
    return files
