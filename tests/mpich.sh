#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds Trireme with Debian's MPICH and HDF5 for it, in a separate build folder, and runs every test; Slurm jobs start
# with srun --mpi=pmi2. Not part of .ci/run: it compiles all sources that include MPI again. GPUs are left out, whose
# collectives are NCCL's; TRIREME_CMAKE_ARGS=-DTRIREME_CUDA=ON adds them.
#
#   tests/mpich.sh                   all tests
#   tests/mpich.sh -R '^comm'        arguments go to ctest
set -euo pipefail

source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
readonly source

"$source/jobs/setup.sh" --mpich --slurm --no-cuda
export TRIREME_BUILD_DIR
TRIREME_BUILD_DIR=$("$source/jobs/build.sh" --directory)-mpich
TRIREME_CMAKE_ARGS="-DTRIREME_CUDA=OFF -DMPI_CXX_COMPILER=$(command -v mpicxx.mpich) -DMPIEXEC_EXECUTABLE=$(command -v mpiexec.mpich)
  -DHDF5_C_COMPILER_EXECUTABLE=$(command -v h5pcc.mpich) -DTRIREME_MPIEXEC_FLAGS= ${TRIREME_CMAKE_ARGS:-}" "$source/jobs/build.sh"
"$TRIREME_BUILD_DIR/trireme" --version | grep -E '^MPI .*MPICH' || { echo "mpich: error: this build has another MPI" >&2; exit 5; }
exec ctest --test-dir "$TRIREME_BUILD_DIR" --parallel "$(nproc)" --output-on-failure --no-tests=error --timeout 600 "$@"
