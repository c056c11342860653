# SPDX-License-Identifier: Apache-2.0
#
# The doctor checks everything, alone and under mpirun, and only rank 0 prints.
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

examine() {
  expect_done
  for subject in MPI "MPI threads" launcher ranks binding threads OpenMP libtorch Kokkos HDF5 CPU GPUs HOME TMPDIR \
    /dev/shm locale memory "matrix products"; do
    (($(grep -cE "^(ok|warning) +$subject  +[^ ]" out.txt) == 1)) || fail "no single line about $subject"
  done
  grep -qE "^[0-9]+ ok, [0-9]+ warnings?, 0 errors$" out.txt || fail "no count"
}
program doctor
examine
grep -q "1 rank on 1 node" out.txt || fail "ranks"
job 2 doctor
examine
grep -q "2 ranks on 1 node" out.txt || fail "ranks"

# Findings are printed with their remedies.
OMP_NUM_THREADS=abc TRIREME_FAULT=step.begin:nan program doctor
grep -A1 "^warning  OMP_NUM_THREADS" out.txt | grep -q -- "-> Unset it" || fail "OMP_NUM_THREADS"
grep -q "^warning  TRIREME_FAULT" out.txt || fail "TRIREME_FAULT"
SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0 program doctor
((status == 5)) || fail "exit code $status where srun and MPI do not meet"
plugin=pmix
if grep -q "^ok  *MPI  *MPICH" out.txt; then plugin=pmi2; fi
grep -A1 "^ERROR    launcher" out.txt | grep -q -- "--mpi=$plugin " || fail "launcher"
