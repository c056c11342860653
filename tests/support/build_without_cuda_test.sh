# SPDX-License-Identifier: Apache-2.0
#
# The program for machines without CUDA: configured with TRIREME_CUDA=OFF in a separate folder, otherwise like this build, so that
# its objects come from the compiler cache. It builds, starts, and rejects GPUs.
# Environment: BUILD (a build folder), TRIREME_SOURCE.
folder=$BUILD-without-cuda  # next to this build, as set for the compiler cache in jobs/build.sh
export CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR:-1}
[[ -n $(ccache --get-config base_dir 2>/dev/null || true) ]] || export CCACHE_BASEDIR=${BUILD%/*}
fail() { printf 'FAILED: %s\n' "$1"; tail -n 40 "$folder.log"; exit 1; }

mkdir -p "$folder"
# Configuration of this build, except for files and libraries of CUDA.
sed -nE '/CUDA|NCCL|NVCC|^BUILD_TESTING/!s/^([A-Za-z0-9_.+-]+):(BOOL|STRING|PATH|FILEPATH)=(.*)$/set(\1 [[\3]] CACHE \2 "")/p' \
  "$BUILD/CMakeCache.txt" >"$folder/as_it_is.cmake"
[[ -s $folder/as_it_is.cmake ]] || fail "no settings in $BUILD/CMakeCache.txt"
cmake -S "$TRIREME_SOURCE" -B "$folder" -G Ninja -C "$folder/as_it_is.cmake" -DTRIREME_CUDA=OFF -DBUILD_TESTING=OFF >"$folder.log" 2>&1 ||
  fail "it cannot be configured"
cmake --build "$folder" --parallel 2 --target trireme >"$folder.log" 2>&1 || fail "it does not build"
"$folder/libexec/trireme/trireme" --version >"$folder.log" 2>&1 || fail "it does not start"
grep -q '^trireme ' "$folder.log" || fail "it does not print its version"
PROGRAM=$folder/libexec/trireme/trireme source "$TRIREME_SOURCE/tests/support/without_cuda_test.sh"
