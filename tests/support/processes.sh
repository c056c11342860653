# SPDX-License-Identifier: Apache-2.0
#
# The processes of a job that a test has started in the background: source this. MPICH's ranks are sessions of their own,
# so parents lead to them.

processes_of() {  # processes_of PID: it, and all that it and those have started
  local child
  echo "$1"
  for child in $(pgrep -P "$1"); do processes_of "$child"; done
}
ranks_of() { pgrep -x trireme -P "$(processes_of "$1" | paste -sd ,)"; }  # ranks_of LAUNCHER: lowest rank first
