# SPDX-License-Identifier: Apache-2.0
#
# Sourced by bash tests with a private directory $work: removes it at the end, ends background jobs of a failed
# test, and lets a test count as skipped (exit code 77) when a part of it could not run here. All other parts still
# run.
# shellcheck shell=bash

untried=0
not_tried() { printf 'skipped: %s\n' "$*"; untried=1; }  # not_tried WHAT AND WHY

end_of_test() {
  local status=$? mount job
  for job in $(jobs -p); do
    kill -TERM "$job" 2>/dev/null && kill -CONT "$job" 2>/dev/null && wait "$job" 2>/dev/null || true
  done
  # shellcheck disable=SC2154  # $work: of the sourcing script
  for mount in $(cut -d ' ' -f 2 /proc/mounts | grep "^$work/" || true); do umount "$mount" || true; done
  rm -rf "$work"
  if ((status == 0 && untried)); then exit 77; fi
  exit "$status"
}
trap end_of_test EXIT
