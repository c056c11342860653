#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs missing dependencies, builds, and runs all tests. Prints the skipped tests with reasons, and ctest's summary and exit code.
#
#   tests/run.sh                  all tests
#   tests/run.sh -L values        arguments go to ctest: one label (values, lint, machine, mpi, gpu, slow) ...
#   tests/run.sh -R '^nn\.'       ... or one layer
#   tests/run.sh --long           with the tests of label "long", which are left out otherwise, and all of what fuzzers and
#                                 sweeps try a random part of (TRIREME_TEST_LONG=1)
#   tests/run.sh --asan           the tests of the value layers, tokenizer, data and checkpoint, fuzzers included, in a build of
#                                 their own with AddressSanitizer and UndefinedBehaviorSanitizer
set -euo pipefail

source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
readonly source
readonly sanitized_layers='base|config|mesh|model|shard|schedule|planner|huggingface|tokenizer|data|checkpoint'

left_out=(-LE '^long$')
if [[ ${1:-} == --long ]]; then
  shift
  export TRIREME_TEST_LONG=1
fi
[[ -z ${TRIREME_TEST_LONG:-} && " $*" != *\ -L[E\ ]* ]] || left_out=()
targets=()
if [[ ${1:-} == --asan ]]; then
  shift
  "$source/jobs/setup.sh" --no-cuda
  export TRIREME_BUILD_DIR TRIREME_CMAKE_ARGS="--preset asan -DTRIREME_CUDA=OFF ${TRIREME_CMAKE_ARGS:-}"
  TRIREME_BUILD_DIR=$("$source/jobs/build.sh" --directory)-asan
  "$source/jobs/build.sh" help >/dev/null  # configures
  # Not the tests of the program, nor those of files of gigabytes.
  mapfile -t targets < <(ninja -C "$TRIREME_BUILD_DIR" -t targets all |
    sed -nE "s/^(($sanitized_layers)_[a-z0-9_]*tests?): .*LINKER.*/\1/p" | grep -v _large_)
  ((${#targets[@]} >= 10)) || { echo "tests: error: only these targets were found: ${targets[*]}" >&2; exit 1; }
  set -- -R "^($sanitized_layers)\\." -E '_cli_test$|large_mpi_test' "$@"
  # Open MPI keeps memory to its end. A sanitizer that stops a rank must end the job with its message.
  export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1
else
  "$source/jobs/setup.sh" --slurm --lint
  # Where all tests run, what some of them ask of Python is downloaded while the program is compiled.
  [[ " $*" == *\ -[LRE]* ]] || TRIREME_SOURCE=$source nice -n 5 bash "$source/tests/support/python.sh" >/dev/null 2>&1 &
fi
"$source/jobs/build.sh" ${targets+"${targets[@]}"}
echo "tests: running after ${SECONDS} s"
report=$(mktemp)
trap 'rm -f "$report"' EXIT
# Two tests more than cores: scripts wait most of the time (see src/cmake/TriremeTests.cmake).
ctest --test-dir "$("$source/jobs/build.sh" --directory)" --parallel $(($(nproc) + 2)) --output-on-failure --no-tests=error \
  --test-output-size-passed 65536 --output-junit "$report" ${left_out+"${left_out[@]}"} "$@" 2>&1 | python3 "$source/tests/support/skips.py" "$report"
