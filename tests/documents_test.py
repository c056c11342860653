#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""References of documents without a target: keys of the run file that docs/run-file.md does not list, messages in
docs/troubleshooting.md that no source has, links and paths without a file, anchors without a heading, identifiers and
options in `backquotes` that the tree does not have, code of the walk-throughs with unknown names, names in docs/api.md
that their headers do not have, families that docs/families.md does not list, generated pages (faults, stages, verbs) that are old.
Needs no build; cli.documented_commands runs the commands, cli.families compares all of docs/families.md."""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "support"))
import faults
import stages
import verbs

SOURCE = pathlib.Path(__file__).resolve().parent.parent
OTHERS = {"faults.md", "from-pytorch.md", "scale.md"}  # name points of faults, keys of other programs, tests
FILES = r"\.(toml|jsonl|json|bin|py|txt|html|md|sh)$"
GENERATED = {"families.md", "counted-calls.md", "faults.md", "run-file.md", "stages.md", "verbs.md"}
FOLDERS = ("src", "include", "tests", "jobs", "inputs", "spack", "docs")
# Names of other programs, and placeholders, that may stand in backquotes.
FOREIGN = set(
    """HF_HOME NCCL_IB_HCA NCCL_MAX_CTAS NCCL_NET_GDR_LEVEL Q4_K_M RUN_DIR SLURM_PMIX_DIRECT_CONN UCX_NET_DEVICES convert_hf_to_gguf
    hash_dir isAllCudaP2p _scaled_grouped_mm mK mlx5_0 no_sync pP process_results ringR gradR rowwise_with_gw_hp
    set_requires_gradient_sync tcp_retries2 vMAJOR weight_i taken_i _test concurrent_mpi_tests --prtemca --qos --set-config --skip-tokenizer-init""".split()
)
# Names that the examples of the walk-throughs define.
EXAMPLES = set(
    """keep keep_blocks keep_unsharded kept_blocks_are_resharded_otherwise immediate_keep_2_blocks last_reshard KeepUnsharded
    GathersAKeptBlockOncePerStep GathersEachBlockOncePerForward ScaleCode scale_input""".split()
)


def unknown_keys(text: str, known: set[str]) -> list[str]:
    sections = "|".join(sorted({key.split(".")[0] for key in known}))
    quoted = " ".join(re.findall(r"`([^`\n]+)`", text))
    keys = re.findall(rf"(?<![\w./-])(?:{sections})\.[a-z_0-9]*[a-z0-9](?![\w(./*])", quoted)
    return sorted({key for key in keys if key not in known and not re.search(FILES, key)})


def unknown_messages(table: str, text: str) -> list[str]:
    """First cells of the table's rows with parts (around ...) that are not in `text`."""
    cells = [cell for row in re.findall(r"^\| (`[^|]*) \|", table, re.M) for cell in re.findall(r"`([^`]*)`", row)]
    assert len(cells) >= 10 or table.count("|") < 10, f"only {len(cells)} messages were found"
    return [cell for cell in cells if any(part not in text for part in cell.split(" ... "))]


def anchors(page: str) -> set[str]:
    """Anchors of a page's headings, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.*)$", page, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def broken_links(path: pathlib.Path, page: str) -> list[str]:
    """Relative links whose file or anchor does not exist, and paths of this repository that do not."""
    text = re.sub(r"^ {4}.*$", "", page, flags=re.M)  # code
    wrong = []
    for link in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        if not target.exists():
            wrong.append(f"the link {link} has no file")
        elif anchor and anchor not in anchors(page if target == path else target.read_text()):
            wrong.append(f"the link {link} has no heading")
    paths = re.findall(r"`((?:docs|tests|src|include|jobs|inputs)/[\w./-]+)`", text)
    return wrong + [f"there is no {name}" for name in paths if not (SOURCE / name).exists()]


class Tree:
    """Files of the repository, and the words of all files except documents."""

    def __init__(self) -> None:
        files = [path for folder in FOLDERS for path in (SOURCE / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        files += [path for path in SOURCE.iterdir() if path.is_file()]
        self.paths = {str(path.relative_to(SOURCE)) for path in files}
        self.folders = {str(folder) for path in self.paths for folder in pathlib.Path(path).parents}
        self.words = {pathlib.Path(path).name.split(".")[0] for path in self.paths}
        for path in files:
            if path.suffix in {".cpp", ".hpp", ".cu", ".cuh", ".py", ".sh", ".toml", ".txt", ".sbatch", ".def", ".json", ".yaml", ".in"}:
                if path != pathlib.Path(__file__).resolve():
                    self.words |= set(re.findall(r"--[a-z][a-z0-9-]+|\w+", path.read_text(errors="replace")))
        tests = {f"{pathlib.Path(path).parts[1]}_{kind}" for path in self.paths if path.startswith("tests/") for kind in ("tests", "mpi_tests")}
        self.words |= tests | {word.removesuffix("_test") for word in self.words}
        self.layers = {path.name for path in (SOURCE / "src").iterdir() if path.is_dir()}

    def has(self, path: str) -> bool:
        """Whether a file or folder ends with these parts, with or without the end of its name."""
        path = path.strip("/")
        names = [path, f"{path}.cpp", f"{path}.hpp", f"{path}_test.cpp", f"{path}_test.sh", f"{path}_test.py"]
        return any(f"/{known}".endswith(f"/{name}") for name in names for known in self.paths | self.folders)


def stale_names(page: str, tree: Tree) -> list[str]:
    """Paths of layers, identifiers (with an underscore or capitals inside) and options in backquotes that the tree lacks."""
    wrong = []
    text = re.sub(r"^ {4}.*$", "", page, flags=re.M)  # code
    for quoted in re.findall(r"`([^`\n]+)`", text):
        if re.fullmatch(r"[\w-]+(?:/[\w-]+)+(?:\.(?:cpp|hpp|sh|py)|/)?", quoted) and quoted.split("/")[0] in tree.layers and not tree.has(quoted):
            wrong.append(f"no file is {quoted}")
        if re.fullmatch(r"[A-Za-z][\w-]*\.(?:cpp|hpp|sh|py)", quoted) and quoted.split(".")[0] not in FOREIGN | EXAMPLES and not tree.has(quoted):
            wrong.append(f"no file is {quoted}")
        for name in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+|(?<![\w<$>-])[A-Za-z_]\w+(?![\w>])", quoted):
            special = name.startswith("--") or "_" in name.rstrip("_") or re.search("[a-z][A-Z]", name)
            if special and name not in tree.words | FOREIGN | EXAMPLES and not any(word.startswith(name) for word in tree.words if name.endswith("_")):
                wrong.append(f"nothing is named {name}")
    return wrong


def stale_commands(page: str, known: set[str], options: set[str]) -> list[str]:
    """Options of `trireme` and keys of --set and of run files in code that do not exist."""
    wrong, section = [], ""
    for line in re.findall(r"^ {4}(.*)$", page, re.M):
        command = re.search(r"\btrireme (?=[a-z])(.*)", line.split("  #")[0])
        if command:
            used = command[1].split("--option=")[0]
            wrong += [f"trireme has no option {name}" for name in re.findall(r"(?<=\s)--[a-z][a-z-]+", used) if name not in options]
        wrong += [f"--set {key}: there is no such key" for key in re.findall(r"--set ([a-z_]+\.[a-z_]+)=", line) if key not in known]
        heading = re.fullmatch(r"\[(\w+)\](?:\s+#.*)?", line)
        section = heading[1] if heading else section if re.match(r"[a-z_]+ = ", line) else ""
        key = re.match(r"([a-z_]+) = ", line)
        if section and key and any(name.startswith(section + ".") for name in known) and f"{section}.{key[1]}" not in known:
            wrong.append(f"there is no key {section}.{key[1]}")
    return wrong


def unknown_code(page: str, tree: Tree) -> list[str]:
    """Identifiers in the C++ of a walk-through that no source has."""
    code = "\n".join(re.findall(r"^ {4}(.*)$", page, re.M))
    code = re.sub(r'//.*|"[^"\n]*"', "", code)
    names = sorted(set(re.findall(r"[A-Za-z_]\w*", code)) - EXAMPLES)
    return [f"the example uses {name}, which no source has" for name in names if name not in tree.words]


def unknown_names(page: str) -> list[str]:
    """Headers of the tables in docs/api.md that do not exist, and names that none of a row's headers has."""
    rows = re.findall(r"^\| [^|]+\| ([^|]+\.hpp`) \| ([^|]+)\|$", page, re.M)
    assert len(rows) >= 10 or page.count("|") < 10, f"only {len(rows)} rows were found"
    wrong = []
    for headers, names in rows:
        paths = [SOURCE / "include/trireme" / header for header in re.findall(r"`([\w/]+\.hpp)`", headers)]
        wrong += [f"api.md: there is no {path.relative_to(SOURCE)}" for path in paths if not path.exists()]
        text = "".join(path.read_text() for path in paths if path.exists())
        wrong += [f"api.md: {headers} has no {name}" for name in re.findall(r"`(\w+)`", names) if not re.search(rf"\b{name}\b", text)]
    return wrong


def unlisted_families(table: str, sources: str) -> list[str]:
    """Classes of src/model/architectures without a row in docs/families.md, and rows without a class."""
    listed = set(re.findall(r"^\| `\w+` \| (\w+) \|", table, re.M))
    classes = set(re.findall(r'class_name = "(\w+)"', sources))
    assert classes, "no class was found"
    return [f"families.md: {name} is in only one of the table and src/model/architectures" for name in sorted(listed ^ classes)]


def stale_faults(written: str) -> list[str]:
    """Whether docs/faults.md is the generated page."""
    page = faults.page(faults.all_tests())
    assert page.count("\n| ") >= 150, "few faults were found"
    return [] if written == page else ["faults.md: write it with python3 tests/support/faults.py >docs/faults.md"]


def sources() -> str:
    """Sources with their string literals joined, and explained messages of other programs."""
    files = [path for folder in ("src", "include") for path in sorted((SOURCE / folder).rglob("*.?pp"))]
    text = "".join(path.read_text() for path in files)
    return re.sub(r'"\s*\n\s*"', "", text) + (SOURCE / "docs/installing.md").read_text()


def main() -> int:
    known = set(re.findall(r"^\| `([a-z]+\.[a-z_0-9]+)` \|", (SOURCE / "docs/run-file.md").read_text(), re.M))
    assert len(known) >= 90, f"docs/run-file.md: only {len(known)} options were found"
    assert unknown_keys("`shard.size`, `shard.sizes = 2`, `shard.toml`, shard.none", {"shard.size"}) == ["shard.sizes"]
    assert unknown_messages("| `a ... c` | x |\n| `a ... d` | x |", "a b c") == ["a ... d"]
    page = "# A `b`, c\n[x](#a-b-c) [y](#d) [z](none.md) `docs/none.md` [w](https://w)\n    [code](none.md)"
    assert broken_links(SOURCE / "docs/run-file.md", page) == ["the link #d has no heading", "the link none.md has no file", "there is no docs/none.md"]
    row = "| to | `base/error.hpp`, `base/none.hpp` | `Error`, `Errors` |"
    assert unknown_names(row) == ["api.md: there is no include/trireme/base/none.hpp", "api.md: `base/error.hpp`, `base/none.hpp` has no Errors"]
    assert unlisted_families("| `a` | A | x |\n| `b` | B | x |", 'a.class_name = "A"; .class_name = "C"') == [
        f"families.md: {name} is in only one of the table and src/model/architectures" for name in "BC"
    ]
    comments = "# Fault, saves: a disk\n#   is full -> an error\nx=1  # Fault, none\n// Fault, hangs: a -> b\n"
    assert faults.faults(comments) == [("saves", "a disk is full", "an error"), ("hangs", "a", "b")]
    assert "| a disk is full | an error | `a/b` |\n" in faults.page({"a/b": comments})
    tree = Tree()
    planted = "`no/such.hpp` `model/no_such.cpp` `executor/progress` `nosuch.hpp` `build.cpp` `schedule::no_such(x)` `std::visit` `--no-such`"
    assert stale_names(planted, tree) == [
        "no file is model/no_such.cpp", "nothing is named no_such", "no file is nosuch.hpp", "nothing is named no_such", "nothing is named --no-such"
    ]  # fmt: skip
    assert unknown_code("text\n    Schedule no_such(Schedule schedule);  // other\n", tree) == ["the example uses no_such, which no source has"]
    options = set(re.findall(r"--[a-z][a-z-]+", "".join(path.read_text() for path in (SOURCE / "src/cli").rglob("*.?pp"))))
    planted = "    trireme plan a.toml --rank 4 --set a.b=1\n    [data]\n    seq_len = 2\n    seqlen = 2\n    [x]\n    y = 1\n"
    assert stale_commands(planted, {"data.seq_len"}, {"--ranks", "--set"}) == [
        "trireme has no option --rank", "--set a.b: there is no such key", "there is no key data.seqlen"
    ]  # fmt: skip
    wrong = [
        f"{path.name}: {key}: docs/run-file.md has no such option; correct the name, or write it without `` where it is none"
        for path in [SOURCE / "README.md", *sorted((SOURCE / "docs").glob("*.md"))]
        if path.name not in OTHERS
        for key in unknown_keys(path.read_text(), known)
    ]
    table = (SOURCE / "docs/troubleshooting.md").read_text().split("## By message")[1]
    wrong += [f"troubleshooting.md: no source has {message!r}" for message in unknown_messages(table, sources())]
    architectures = "".join(path.read_text() for path in sorted((SOURCE / "src/model/architectures").glob("*.cpp")))
    wrong += unlisted_families((SOURCE / "docs/families.md").read_text(), architectures)
    wrong += stale_faults((SOURCE / "docs/faults.md").read_text())
    for generator in (stages, verbs):
        name = generator.__name__
        if generator.page() != (SOURCE / f"docs/{name}.md").read_text():
            wrong.append(f"{name}.md: write it with python3 tests/support/{name}.py >docs/{name}.md")
    wrong += unknown_names((SOURCE / "docs/api.md").read_text())
    pages = [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", *sorted((SOURCE / "docs").rglob("*.md"))]
    wrong += [f"{path.relative_to(SOURCE)}: {one}" for path in pages for one in broken_links(path, path.read_text())]
    by_hand = [path for path in pages if path.parent.name != "lab" and path.name not in GENERATED]
    named = [path for path in pages if path.name == "faults.md" or (path in by_hand and path.name != "from-pytorch.md")]  # whose names are others'
    wrong += [f"{path.relative_to(SOURCE)}: {one}" for path in named for one in stale_names(path.read_text(), tree)]
    wrong += [f"{path.relative_to(SOURCE)}: {one}" for path in by_hand for one in stale_commands(path.read_text(), known, options)]
    walks = sorted((SOURCE / "docs").glob("add-a*.md"))
    wrong += [f"{path.relative_to(SOURCE)}: {one}" for path in walks for one in unknown_code(path.read_text(), tree)]
    words = sum(bool(re.search(r"\w", word)) for path in by_hand for word in path.read_text().split())  # without bars of tables
    print(f"{len(known)} options, {words} words by hand", *wrong, sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
