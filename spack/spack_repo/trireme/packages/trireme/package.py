# SPDX-License-Identifier: Apache-2.0
#
# For Spack 1.1 and later. tests/spack_test.py holds it to what CMake asks for.
import pathlib

from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Trireme(CMakePackage, CudaPackage):
    """Trains Llama-class language models on clusters: one C++20 MPI program, whose training step is a list of operations
    that can be printed, checked and costed before it runs."""

    license("Apache-2.0")

    # The checkout that this recipe lies in, ours or the one that `spack repo add <URL>` made; the environments build the
    # working tree itself (develop:).
    git = str(pathlib.Path(__file__).resolve().parents[5])
    homepage = f"file://{git}/README.md"
    # Maintainers of a Spack package are accounts of GitHub. The project has none yet: a site that copies the recipe into
    # its own package repository enters its contact with maintainers("account").
    version("main", branch="main")
    # A release is version("0.1.0", tag="v0.1.0", commit="..."), added by the commit after the tag (CONTRIBUTING.md). The
    # commit is its checksum; there are no source archives. Before the first tag there is none: Spack would prefer a
    # version that it cannot fetch to main.

    variant("werror", default=False, description="Treat compiler warnings as errors")

    generator("ninja")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")

    depends_on("mpi@3.1:")
    depends_on("hdf5@1.10.7:")
    # PyTorch's C++ library: Spack has no package of it alone. Communication is ours, so it may be built without its own.
    depends_on("py-torch@2.8:")
    depends_on("py-torch ~cuda", when="~cuda")
    depends_on("py-torch@2.11: +cuda", when="+cuda")
    depends_on("cuda@13.0:", when="+cuda")
    depends_on("nccl@2.23:", when="+cuda")
    # Host kernels only, also in builds for GPUs.
    depends_on("kokkos@4.5:4 +openmp")

    depends_on("fmt@9:")
    depends_on("spdlog@1.10:")
    depends_on("cli11@2.1:")
    depends_on("tomlplusplus@3:")
    depends_on("nlohmann-json@3.10:")
    depends_on("xxhash")
    depends_on("sentencepiece")
    depends_on("pcre2@10.40: +jit")
    depends_on("utf8proc")
    depends_on("zlib-api")
    depends_on("zstd")

    depends_on("googletest@1.12: +gmock", type="test")
    depends_on("benchmark", type="test")
    depends_on("python@3.9:", type="test")

    # cuda_arch is not handed down by itself.
    for _arch in CudaPackage.cuda_arch_values:
        for _package in ("nccl", "py-torch"):
            depends_on(f"{_package} cuda_arch={_arch}", when=f"+cuda cuda_arch={_arch}")
    conflicts("+cuda", when="cuda_arch=none", msg="say for which GPUs: cuda_arch=90")
    conflicts("%gcc@:11", msg="C++20 needs GCC 12 or later")

    def cmake_args(self):
        return [
            self.define_from_variant("TRIREME_CUDA", "cuda"),
            self.define_from_variant("TRIREME_WERROR", "werror"),
            # Spack's compiler wrapper sets the target's -march.
            self.define("TRIREME_ARCH", ""),
            self.define("BUILD_TESTING", self.run_tests),
        ]

    def check(self):
        """What `spack install --test=root` runs: all tests but the slow ones, which take another half hour."""
        with working_dir(self.build_directory):
            ctest("--output-on-failure", "--parallel", str(make_jobs), "-LE", "slow")

    def setup_run_environment(self, env):
        # The batch scripts in share/trireme/jobs find each other by it, as they do with our own modulefile.
        env.set("TRIREME_ROOT", self.prefix)

    def test_help(self):
        """the installed program explains itself without MPI and without a GPU"""
        trireme = which(self.prefix.bin.trireme)
        out = trireme("--version", output=str.split, error=str.split)
        assert "trireme" in out
        out = trireme("--help", output=str.split, error=str.split)
        assert "tokenize" in out

    def test_plan(self):
        """the installed program plans the installed run file"""
        trireme = which(self.prefix.bin.trireme)
        run_file = self.prefix.share.trireme.inputs.join("quickstart.toml")
        out = trireme("plan", run_file, "--ranks", "4", output=str.split, error=str.split)
        assert "parameters.sharded" in out
