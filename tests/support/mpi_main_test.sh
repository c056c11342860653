# SPDX-License-Identifier: Apache-2.0
#
# The main function of the MPI tests: a failure or an exception on one rank fails the job with that rank's message;
# --file selects the tests of one source, and fails where there are none.
# Environment: MPIEXEC, MPIEXEC_FLAGS, PROBE_PROGRAM (built from probe/failing_ranks.cpp).

expect() {  # expect ACTION SUCCEEDS? TEXT [ARGUMENTS]
  local output status=0
  # shellcheck disable=SC2086  # several options in one variable
  output=$(PROBE=$1 $MPIEXEC $MPIEXEC_FLAGS -n 2 "$PROBE_PROGRAM" "${@:4}" 2>&1) || status=$?
  if { ((status == 0)) && [[ $2 == no ]]; } || { ((status != 0)) && [[ $2 == yes ]]; } || [[ $output != *"$3"* ]]; then
    printf 'PROBE=%s: exit code %d, expected success: %s, expected text: %s\n%s\n' "$1" "$status" "$2" "$3" "$output"
    exit 1
  fi
}

expect nothing yes '[  PASSED  ] 3 tests.'
expect fail no '[rank 1] Probe.MayFail'
expect throw no '[rank 1] a test threw: thrown as asked'
expect nothing yes '[  PASSED  ] 2 tests.' --file failing_ranks
expect fail yes '[  PASSED  ] 1 test.' --file other_source
expect nothing no 'no test of failing.cpp is in this program' --file failing
