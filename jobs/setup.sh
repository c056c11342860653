#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what Trireme is built with and this machine lacks; says what it does; may be run again at any time.
#
#   jobs/setup.sh
#   jobs/setup.sh --slurm      Slurm and munge as well, for the tests that start a cluster of their own (tests/slurm/cluster.sh)
#   jobs/setup.sh --mpich      Debian's MPICH and HDF5 for it as well, for tests/mpich.sh; Open MPI stays what mpirun means
#
# 1. Debian packages (only where apt-get exists; elsewhere the site's modules or Spack provide them).
# 2. The C++ library of PyTorch, out of the PyPI wheel, and the two small CUDA libraries that it is linked to.
# 3. Kokkos, out of the PyPI source package that carries it, built with OpenMP. A site's own Kokkos goes first in CMake.
#
# 2 and 3 live in ${TRIREME_CACHE:-~/.cache/trireme}. A part is unpacked aside and renamed when it is whole, so an
# interrupted run leaves nothing half-made. TRIREME_SKIP_APT=1 leaves the system's packages alone.
set -euo pipefail

readonly cache=${TRIREME_CACHE:-$HOME/.cache/trireme}
readonly torch_version=2.11.0 kokkos_version=4.7.0

packages=(
  g++ cmake ninja-build ccache git
  openmpi-bin libopenmpi-dev libhdf5-openmpi-dev
  libgtest-dev libgmock-dev libbenchmark-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libfmt-dev libspdlog-dev
  libxxhash-dev libsentencepiece-dev sentencepiece
  bible-kjv bible-kjv-text
  python3 unzip ca-certificates
)
case ${1:-} in
  --mpich) packages+=(mpich libmpich-dev libhdf5-mpich-dev) ;;
  --slurm) if ((EUID == 0)); then packages+=(slurm-wlm munge); fi ;; # only root can start nodes
  "") ;;
  *) sed -n '3,16s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac

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
    command -v sudo >/dev/null || fail "these packages are missing and need root to install: ${missing[*]}"
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
  download "$1" "$2" --only-binary=:all: --python-version 3.11 --implementation cp --abi cp311 --abi none \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_25_x86_64 --platform manylinux2014_x86_64
}

# Makes a finished folder appear in the cache in one step.
publish() { rm -rf "$2"; mv -T "$1" "$2"; }

install_libtorch() {
  local home=$cache/libtorch-$torch_version stage=$work/libtorch
  if [[ -e $home/torch/lib/libtorch_cpu.so ]]; then say "libtorch $torch_version: $home"; return; fi
  [[ $(uname -m) == x86_64 ]] || fail "the libtorch wheel is for x86_64; give CMake your own with -DLibtorch_ROOT=..."
  mkdir -p "$stage"
  # The folders keep the wheels' places: libtorch_cpu.so finds the others relative to itself. What needs a GPU stays out.
  download_wheel torch==$torch_version 7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a
  unzip -q "$downloaded" 'torch/lib/libtorch_cpu.so' 'torch/lib/libc10.so' 'torch/lib/libgomp*' 'torch/include/*' 'torch/share/*' \
    'torch-*/licenses/*' -d "$stage"
  download_wheel nvidia-cuda-runtime==13.0.96 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
  unzip -q "$downloaded" '*/libcudart.so*' -d "$stage"
  download_wheel nvidia-cuda-cupti==13.0.85 4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8
  unzip -q "$downloaded" '*/libcupti.so*' -d "$stage"
  publish "$stage" "$home"
  say "libtorch $torch_version: $home"
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

mkdir -p "$cache"
# One set-up at a time: two builds may start it together.
exec 9>"$cache/setup.lock"
flock 9
rm -rf "$cache"/setup.tmp.*
work=$(mktemp -d "$cache/setup.tmp.XXXXXX")
trap 'rm -rf "$work"' EXIT

install_packages
install_libtorch
install_kokkos
say "done in ${SECONDS} s"
