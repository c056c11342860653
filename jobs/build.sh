#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Configures and builds Trireme in a separate folder outside the checkout, and prints the program's path.
#
#   jobs/build.sh [TARGET...]         all targets unless some are named; run jobs/setup.sh before the first time
#   jobs/build.sh --directory         prints the build folder and does nothing else
#
# TRIREME_BUILD_DIR names another build folder, TRIREME_CMAKE_ARGS adds options (-DTRIREME_ARCH=native).
# TRIREME_UNITY=OFF compiles sources separately instead of up to 16 at a time (CMake's UNITY_BUILD): a full build takes
# three times as long, a rebuild after a change of one source less. Use it for development.
# With a CUDA 13 toolkit (jobs/setup.sh) the program runs on GPUs and on CPUs; -DTRIREME_CUDA=OFF builds for CPUs only.
set -euo pipefail

source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
readonly source
readonly cache=${TRIREME_CACHE:-$HOME/.cache/trireme}
# One folder per checkout: two of them never share objects.
readonly build=${TRIREME_BUILD_DIR:-$cache/build/$(basename "$source")-$(printf %s "$source" | sha256sum | cut -c1-12)}

case ${1:-} in
  --directory) echo "$build"; exit ;;
  --help) sed -n '4,12s/^# \{0,1\}//p' "$0"; exit ;;
  -*) echo "build: error: unknown option $1: see --help" >&2; exit 2 ;;
esac

# One build, not two: without a GPU its program does on CPUs what a build without CUDA does (the objects are the same).
cuda=OFF
nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
if [[ ! -x $nvcc && -x $cache/cuda-13.0/bin/nvcc ]]; then  # jobs/setup.sh --cuda-toolkit
  nvcc=$cache/cuda-13.0/bin/nvcc
  export CUDACXX=$nvcc
fi
if [[ -x $nvcc ]] && "$nvcc" --version | grep -q 'release 13\.' && compgen -G "$cache/libtorch-*/torch/lib/libtorch_cuda.so" >/dev/null; then
  cuda=ON
fi

mkdir -p "$build"
# shellcheck disable=SC2086  # several options in one variable
cmake -S "$source" -B "$build" -G Ninja -DTRIREME_CUDA=$cuda -DTRIREME_UNITY="${TRIREME_UNITY:-ON}" ${TRIREME_CMAKE_ARGS:-} >"$build/configure.log" 2>&1 ||
  { cat "$build/configure.log" >&2; echo "build: error: CMake could not configure; see above" >&2; exit 5; }
grep -E '^-- Found (Libtorch|CUDAToolkit|NCCL|Kokkos|MPI_CXX|HDF5)' "$build/configure.log" || true
# Lets build folders next to this one share the compiler cache (tests/support/build_without_cuda_test.sh).
export CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR:-1}
if [[ -z $(ccache --get-config base_dir 2>/dev/null || true) ]]; then
  CCACHE_BASEDIR=$(dirname "$build")
  export CCACHE_BASEDIR
fi
NINJA_STATUS='[%f/%t %es] ' nice -n 5 cmake --build "$build" --parallel "$(nproc)" ${@:+--target "$@"}
echo "build: the program is $build/trireme (built in ${SECONDS} s)"
