# SPDX-License-Identifier: Apache-2.0
#
# Sourced after small_run.sh: a run in the background whose system calls fail by the rules of a file
# (tests/support/system_calls). Environment: SYSTEM_CALLS.
# shellcheck shell=bash disable=SC2034,SC2154  # variables of the test and of small_run.sh

injected="env LD_PRELOAD=$SYSTEM_CALLS SYSTEM_CALLS_RULES=$work/rules"
rules() { printf '%s\n' "$@" >rules.new && mv rules.new rules; }

# shellcheck disable=SC2120  # for the arguments of later calls
start() {  # start [--set ...]: a run of two ranks in the background, under the rule at_start if it is set; $pid
  rm -rf out rules
  [[ -z ${at_start:-} ]] || rules "$at_start"
  : >out.txt
  : >err.txt
  last="train run.toml $*"
  # shellcheck disable=SC2086  # several options in one variable
  $MPIEXEC $MPIEXEC_FLAGS -n 2 $injected "$TRIREME" train run.toml --set metrics.every=100000000 "$@" >>out.txt 2>>err.txt &
  pid=$!
}
await() {  # await FILE FROM PATTERN: a line after line FROM that matches
  local i
  for ((i = 0; i < 2400; ++i)); do
    ! tail -n "+$(($2 + 1))" "$1" | grep -q "$3" || return 0
    kill -0 $pid 2>/dev/null || fail "the run ended; awaited: $3"
    sleep 0.05
  done
  fail "never printed: $3"
}
a_save_works() {  # one that begins now is written, and whole
  await out.txt "$(wc -l <out.txt)" '^saved out/checkpoints/step-'
  await out.txt "$(wc -l <out.txt)" '^saved out/checkpoints/step-'
}
