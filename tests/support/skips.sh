# SPDX-License-Identifier: Apache-2.0
#
# Sourced by the tests under bash that have a directory of their own in $work: removes it at the end, and lets a test count as
# skipped (exit code 77) when a part of it could not be tried here. All other parts are tried all the same.
# shellcheck shell=bash

untried=0
not_tried() { printf 'skipped: %s\n' "$*"; untried=1; }  # not_tried WHAT AND WHY

end_of_test() {
  local status=$? mount
  # shellcheck disable=SC2154  # $work: of whoever sources this
  for mount in $(cut -d ' ' -f 2 /proc/mounts | grep "^$work/" || true); do umount "$mount" || true; done
  rm -rf "$work"
  if ((status == 0 && untried)); then exit 77; fi
  exit "$status"
}
trap end_of_test EXIT
