# SPDX-License-Identifier: Apache-2.0
#
# Finds the processes of a job that a test has started in the background; source this. MPICH's ranks are separate sessions, so
# they are found by their parents.

processes_of() {  # processes_of PID: it, and all that it and those have started
  local child
  echo "$1"
  for child in $(pgrep -P "$1"); do processes_of "$child"; done
}
ranks_of() { pgrep -x trireme -P "$(processes_of "$1" | paste -sd ,)"; }  # ranks_of LAUNCHER: lowest rank first

# For tests that wait for a state, however long that takes on a busy machine; they define `fail`.
await_stopped() {  # await_stopped LAUNCHER: until a fault has stopped one of its ranks; $stopped
  local each i
  for ((i = 0; i < 2400; ++i)); do
    for each in $(ranks_of "$1"); do
      [[ $(ps -o state= -p "$each") == T ]] || continue
      # shellcheck disable=SC2034  # used by the tests that source this file
      stopped=$each
      return 0
    done
    kill -0 "$1" 2>/dev/null || fail 'the job ended before a rank stopped'
    sleep 0.05
  done
  fail 'no rank stops'
}
await_end_of() {  # await_end_of RANK...: until none of them runs: a launcher may end before the ranks that it, or the test, has killed
  local each
  for each; do
    while [[ $(ps -o state=,comm= -p "$each") == [!Z]*trireme ]]; do sleep 0.05; done
  done
}
