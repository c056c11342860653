# SPDX-License-Identifier: Apache-2.0
"""The Spack recipe and its environments agree with CMake and with the tree.

The recipe runs here with stand-ins for Spack's directives that note what it declares. Where Spack itself is installed, the
environments are concretized as well.
"""

import itertools
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import types

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECIPE = ROOT / "spack/spack_repo/trireme/packages/trireme/package.py"
ENVIRONMENTS = ["spack.yaml", "spack/envs/cpu/spack.yaml", "spack/envs/debian/spack.yaml"]
# Packages found by CMake, and the Spack package of each. Versions are those of find_package.
PACKAGES = {
    "fmt": "fmt",
    "tomlplusplus": "tomlplusplus",
    "nlohmann_json": "nlohmann-json",
    "CLI11": "cli11",
    "spdlog": "spdlog",
    "MPI": "mpi",
    "CUDAToolkit": "cuda",
    "Libtorch": "py-torch",
    "Kokkos": "kokkos",
    "HDF5": "hdf5",
    "xxhash": "xxhash",
    "sentencepiece": "sentencepiece",
    "pcre2": "pcre2",
    "utf8proc": "utf8proc",
    "zlib": "zlib-api",
    "zstd": "zstd",
    "GTest": "googletest",
    "benchmark": "benchmark",
    "Python3": "python",
}

# Newest versions of what we restrict, in the releases of Spack's package repository (github.com/spack/spack-packages, by tag):
# that of Spack 1.1.0, and the one required by docs/installing.md.
DEFAULT, WANTED = "v2025.11.0", "v2026.06.0"
VERSIONS = {
    DEFAULT: {
        "py-torch": "2.7.1 2.8.0 2.9.0",
        "kokkos": "4.4.01 4.5.01 4.6.02 4.7.01",
        "hdf5": "1.10.11 1.12.3 1.14.6",
        "cuda": "12.3.2 12.4.1 12.9.1 13.0.2",
        "nccl": "2.26.6-1 2.27.7-1 2.28.7-1",
        "cmake": "3.31.9 4.0.4 4.1.2",
        "fmt": "11.2.0 12.0.0 12.1.0",
        "spdlog": "1.15.3 1.16.0",
        "cli11": "2.4.2 2.5.0",
        "tomlplusplus": "3.4.0",
        "nlohmann-json": "3.11.3 3.12.0",
        "pcre2": "10.43 10.44",
        "googletest": "1.15.2 1.17.0",
        "python": "3.12.12 3.13.8 3.14.0",
    },
    WANTED: {
        "py-torch": "2.9.1 2.10.0 2.11.0 2.12.0",
        "kokkos": "4.7.04 5.0.2 5.1.1",
        "hdf5": "1.10.11 1.12.3 1.14.6 2.1.0",
        "cuda": "12.9.1 13.0.2 13.3.0",
        "nccl": "2.28.9-1 2.29.7-1",
        "cmake": "3.31.11 4.2.3 4.3.3",
        "fmt": "11.2.0 12.0.0 12.1.0",
        "spdlog": "1.15.3 1.16.0",
        "cli11": "2.5.0 2.6.1",
        "tomlplusplus": "3.4.0",
        "nlohmann-json": "3.11.3 3.12.0",
        "pcre2": "10.43 10.44",
        "googletest": "1.15.2 1.17.0",
        "python": "3.13.13 3.14.5",
    },
}


class Recorder:
    """What a recipe declares."""

    def __init__(self):
        self.variants = {"cuda", "cuda_arch", "build_type", "generator", "ipo"}  # of CMakePackage and CudaPackage
        self.dependencies = {}  # name -> [(spec, type, when)]
        self.versions = {}  # name -> how it is fetched
        self.maintainers = []

    def load(self):
        def depends_on(spec, type=("build", "link"), when=None):
            self.dependencies.setdefault(re.match(r"[a-z0-9-]+", spec)[0], []).append((spec, type, when))

        package = types.ModuleType("spack.package")
        package.variant = lambda name, default=None, description="", values=None, when=None: self.variants.add(name)
        package.depends_on = depends_on
        package.version = lambda name, **how: self.versions.update({name: how})
        package.conflicts = package.license = lambda *a, **k: None
        package.maintainers = lambda *names: self.maintainers.extend(names)
        package.which = lambda program: program
        cmake = types.ModuleType("spack_repo.builtin.build_systems.cmake")
        cmake.CMakePackage = type("CMakePackage", (), {})
        cmake.generator = lambda *names, default=None: None
        cuda = types.ModuleType("spack_repo.builtin.build_systems.cuda")
        cuda.CudaPackage = type("CudaPackage", (), {"cuda_arch_values": ("80", "90", "100")})
        parents = ["spack", "spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"]
        for module in [types.ModuleType(name) for name in parents] + [package, cmake, cuda]:
            sys.modules[module.__name__] = module
        self.package = runpy.run_path(str(RECIPE))["Trireme"]
        return self

    def run_environment(self):
        """What `spack load` and Spack's modules set, with PREFIX as the place of the installation."""
        variables = {}
        installed = types.SimpleNamespace(prefix="PREFIX")
        self.package.setup_run_environment(installed, types.SimpleNamespace(set=variables.__setitem__))
        return variables

    def options(self):
        """CMake option -> the variant that sets it, or None."""

        class Build:
            run_tests = True

            @staticmethod
            def define(option, value):
                return option, None

            @staticmethod
            def define_from_variant(option, variant):
                return option, variant

        return dict(self.package.cmake_args(Build()))


def cmake_text():
    files = [ROOT / "CMakeLists.txt", *sorted((ROOT / "src/cmake").glob("*.cmake"))]
    return re.sub(r"(?m)^ *#.*", "", "\n".join(file.read_text() for file in files))


def check(condition, message):
    if not condition:
        sys.exit(f"FAILED: {message}")


def check_recipe(recipe):
    text = cmake_text()
    known = set(re.findall(r"^option\((\w+)", text, re.M)) | set(re.findall(r"^set\((TRIREME_\w+) .* CACHE", text, re.M))
    for option, variant in recipe.options().items():
        check(option in known, f"the recipe sets {option}, which is no option of CMake ({sorted(known)})")
        check(variant is None or variant in recipe.variants, f"{option} is set from {variant}, which is no variant")
    used = {variant for variant in recipe.options().values() if variant}
    own = recipe.variants - {"cuda_arch", "build_type", "generator", "ipo"}
    check(own == used, f"variants that no option takes up: {own - used}")
    check("main" in recipe.versions, "there is no version main")
    check(pathlib.Path(recipe.package.git) == ROOT, f"the recipe's sources are in {recipe.package.git}")
    homepage = recipe.package.homepage
    check(homepage.startswith("https://") or pathlib.Path(homepage.removeprefix("file://")).is_file(), f"homepage: {homepage}")
    reason = "Maintainers of a Spack package are accounts" in RECIPE.read_text()
    check(bool(recipe.maintainers) != reason, "the recipe has maintainers, or the reason why it has none")
    check(dict(recipe.versions["main"]) == {"branch": "main"}, f"version main is {recipe.versions['main']}")

    own_module = (ROOT / "jobs/modulefile.lua.in").read_text()
    by_hand = {name: "PREFIX" for name in re.findall(r'setenv\("(\w+)", "@TRIREME_MODULE_ROOT@"\)', own_module)}
    check(recipe.run_environment() == by_hand, f"Spack sets {recipe.run_environment()}, our modulefile {by_hand}")

    found = re.findall(r"find_package\((\w+)(?: ([\d.]+))?", text) + [
        (name, "") for name in re.findall(r"^trireme_find_library\((\w+)", text, re.M)
    ]
    for name, least in found:
        if name == "OpenMP":  # the compiler's
            continue
        if name == "PkgConfig":  # optional: the version of SentencePiece, for messages
            continue
        check(name in PACKAGES, f"CMake finds {name}, for which PACKAGES names no package")
        package = PACKAGES[name]
        check(package in recipe.dependencies, f"CMake finds {name}, and the recipe depends on no {package}")
        specs = [spec for spec, _, _ in recipe.dependencies[package]]
        check(not least or any(f"@{least}:" in spec for spec in specs), f"CMake wants {name} {least}, the recipe {specs}")
    check_cuda(dict(found)["CUDAToolkit"])
    least = re.search(r"cmake_minimum_required\(VERSION ([\d.]+)", text)[1]
    check(f"cmake@{least}:" in recipe.dependencies["cmake"][0][0], f"CMake itself is wanted from {least} on")
    check(not re.search(r"[+~]mpi", recipe.dependencies["hdf5"][0][0]), "HDF5 may be serial or parallel")
    check("HDF5_IS_PARALLEL)\n  message(FATAL" not in text, "CMake takes a serial HDF5, as the recipe does")
    check("+openmp" in recipe.dependencies["kokkos"][0][0], "Kokkos runs on threads")
    for package in ("nccl", "py-torch"):
        archs = [when for _, _, when in recipe.dependencies[package] if when and "cuda_arch=90" in when]
        check(archs, f"cuda_arch is not handed down to {package}")


def check_cuda(required):
    """One version of CUDA: CMake's, in every page, script, image and environment."""
    major, _, minor = required.partition(".")
    names = ["README.md", "CONTRIBUTING.md", "spack.yaml", *(f"docs/{name}" for name in ("installing.md", "administrators.md", "gpus.md"))]
    names += [str(path.relative_to(ROOT)) for path in (ROOT / "jobs").iterdir()]
    for name in names:
        for found in re.findall(r"(?:CUDA |cuda@|/cuda-)(\d+(?:\.\d+)?)", (ROOT / name).read_text()):
            check(found in (major, required), f"{name} has CUDA {found}, CMake {required}")


def check_releases(recipe, tags, head):
    """Each tag of a release is a version with its commit, from the commit after it on. tags: name -> commit."""
    declared = {name: how for name, how in recipe.versions.items() if name != "main"}
    for name, how in declared.items():
        check(how.get("tag") == f"v{name}", f"version {name} is fetched by {how}, not by the tag v{name}")
        commit = tags.get(f"v{name}", how.get("commit"))  # a shallow checkout has no tags
        check(commit is not None and how.get("commit") == commit, f"version {name}: commit {how.get('commit')}, tag {commit}")
    for tag in sorted(tags):
        check(tag[1:] in declared or tags[tag] == head, f"the recipe has no version {tag[1:]} for the tag {tag}")


def git(*words):
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True).stdout


def release_tags():
    """v1.2.3 -> commit, of the checkout; nothing where Git does not read it."""
    listed = git("for-each-ref", "--format=%(refname:short) %(objectname) %(*objectname)", "refs/tags/v*")
    rows = [line.split() for line in listed.splitlines()]
    return {row[0]: row[-1] for row in rows if re.fullmatch(r"v\d+\.\d+\.\d+", row[0])}


def check_package_repository():
    """Documents that require a version of PyTorch name the package repository that has it, before the first concretization."""
    installing = (ROOT / "docs/installing.md").read_text()
    tag = re.search(r"spack repo update builtin --tag (v\d{4}\.\d\d\.\d+)", installing)
    check(tag is not None, "docs/installing.md does not name the package repository for Spack")
    check(tag.start() < installing.index("spack -e . concretize"), "the package repository is named after it is needed")
    for name in ("spack.yaml", "docs/administrators.md"):
        check(tag[1] in (ROOT / name).read_text(), f"{name} does not name the package repository {tag[1]}")


def has(spec, versions):
    """Whether one of `versions` is in the range of `spec`: "kokkos@4.5:4 +openmp", "py-torch@2.11:", "@2.11 ~cuda"."""

    def numbers(version):
        return [int(part) for part in re.findall(r"\d+", version)]

    span = re.search(r"@([\d.-]*)(:?)([\d.-]*)", spec)
    if not span:
        return True
    low, high = numbers(span[1]), numbers(span[3]) if span[2] else numbers(span[1])

    def within(version):  # 4.7.01 is in :4, as in Spack
        return numbers(version) >= low and (not high or numbers(version)[: len(high)] <= high)

    return any(within(version) for version in versions.split())


def check_versions(recipe):
    """What is required exists: for CPUs in either release of the package repository, for GPUs in the newer one."""
    for package, declared in recipe.dependencies.items():
        for spec, _, when in declared:
            if "@" not in spec or package == "mpi":
                continue
            for release, known in VERSIONS.items():
                check(package in known, f"{package} is restricted to {spec}: VERSIONS has to have its versions")
                if release == WANTED or when != "+cuda":
                    check(has(spec, known[package]), f"{spec}: {release} has {known[package]}")
    required = [re.search(r"py-torch:.*\n +require: \[\"([^\"]*)", (ROOT / name).read_text()) for name in ENVIRONMENTS]
    for spec in [found[1] for found in required if found]:
        check(has(spec, VERSIONS[WANTED]["py-torch"]), f"py-torch {spec}: {WANTED} does not have it")
        check(not has(spec, VERSIONS[DEFAULT]["py-torch"]), f"py-torch {spec}: {DEFAULT} has it; document that in docs/installing.md")
    installing = (ROOT / "docs/installing.md").read_text()
    check(f"--tag {WANTED}" in installing and DEFAULT in installing, "docs/installing.md names other package repositories")
    for package, version in re.findall(r"- spec: ([a-z0-9-]+)@([\d.]+)", (ROOT / ENVIRONMENTS[2]).read_text()):
        for spec, _, when in recipe.dependencies.get(package, []):
            check(when == "+cuda" or has(spec, version), f"{ENVIRONMENTS[2]}: {package} {version} is not {spec}")


def entries(text, indent):
    return re.findall(rf"^ {{{indent}}}([a-z0-9-]+)::?", text, re.M)


def section(text, name):
    lines = text.splitlines()
    begin = lines.index(f"  {name}:")
    return "\n".join(itertools.takewhile(lambda line: not re.match(r"  [a-z]", line), lines[begin + 1 :]))


def check_environment(name, recipe):
    path = ROOT / name
    text = path.read_text()
    try:
        import yaml

        check(set(yaml.safe_load(text)) == {"spack"}, f"{path}: has more than spack:")
    except ImportError:
        pass
    check("\t" not in text, f"{path}: a tab")
    bare = re.sub(r"#.*", "", text)
    for variant in re.findall(r"[+~](\w+)|(\w+)=", section(bare, "specs")):
        check("".join(variant) in recipe.variants, f"{path}: trireme has no variant {''.join(variant)}")
    known = set(recipe.dependencies) | {"all", "openmpi", "mpich", "slurm", "python", "ninja", "zlib"}
    for package in entries(section(bare, "packages"), 4):
        check(package in known, f"{path}: has {package}, which the recipe does not depend on")
    repo = re.search(r"trireme: (\.\S+)", section(bare, "repos"))[1]
    check((path.parent / repo / "repo.yaml").is_file(), f"{path}: there is no repository in {repo}")
    source = re.search(r"path: (\S+)", section(bare, "develop"))[1]
    check((path.parent / source / "CMakeLists.txt").is_file(), f"{path}: there is no source in {source}")


def concretize(name):
    """In a copy elsewhere, so that no lock file is left in the tree."""
    folder = (ROOT / name).parent
    relative = re.compile(r"(?m)^(    trireme: |      path: )(\.\S*)$")
    text = relative.sub(lambda found: found[1] + str((folder / found[2]).resolve()), (ROOT / name).read_text())
    with tempfile.TemporaryDirectory() as copy:
        (pathlib.Path(copy) / "spack.yaml").write_text(text)
        done = subprocess.run(["spack", "-e", copy, "concretize"], capture_output=True, text=True)
        check(done.returncode == 0, f"spack cannot concretize {name}:\n{done.stdout}\n{done.stderr}")


def main():
    recipe = Recorder().load()
    check_recipe(recipe)
    if (ROOT / ".git").exists():
        check_releases(recipe, release_tags(), git("rev-parse", "HEAD").strip())
    check_package_repository()
    check_versions(recipe)
    index = (ROOT / "spack-repo-index.yaml").read_text()
    for path in re.findall(r"^  - (\S+)", index, re.M):
        check((ROOT / path / "repo.yaml").is_file(), f"spack-repo-index.yaml: there is no repository in {path}")
    for name in ENVIRONMENTS:
        check_environment(name, recipe)
    print("spack: the recipe and its environments agree with CMake")


def concretize_all():
    if not shutil.which("spack"):
        print("skipped: there is no Spack to concretize with")
        sys.exit(77)
    for name in ENVIRONMENTS:
        concretize(name)


concretize_all() if "--concretize" in sys.argv else main()
