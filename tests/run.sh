#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what is missing, builds, and runs every test. Ends with ctest's closing lines and its exit code.
#
#   tests/run.sh                  all tests
#   tests/run.sh -L values        arguments go to ctest: one label (values, machine, mpi, gpu, slow) ...
#   tests/run.sh -R '^nn\.'       ... or one layer
set -euo pipefail

readonly source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

"$source/jobs/setup.sh" --slurm
"$source/jobs/build.sh"
echo "tests: running after ${SECONDS} s"
exec ctest --test-dir "$("$source/jobs/build.sh" --directory)" --parallel "$(nproc)" --output-on-failure --no-tests=error "$@"
