#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Copies jobs/launch.sh into every batch script, so that each is one file that sbatch runs from anywhere.
#
#   jobs/write_scripts.sh             after a change of launch.sh
#   jobs/write_scripts.sh --check     fails where a script has another copy
set -euo pipefail

jobs=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
for script in "$jobs"/*.sbatch; do
  new=$(awk -v launch="$jobs/launch.sh" '
    /^# ---- end of jobs\/launch.sh ----$/ { copying = 0 }
    !copying { print }
    /^# ---- jobs\/launch.sh, copied by jobs\/write_scripts.sh ----$/ {
      copying = found = 1
      while ((getline line < launch) > 0) if (line !~ /^# (SPDX|shellcheck shell)/) print line
    }
    END { exit !found || copying }' "$script") || { echo "write_scripts: error: $script has no place for launch.sh" >&2; exit 1; }
  if [[ ${1:-} == --check ]]; then
    [[ $new == "$(cat "$script")" ]] ||
      { echo "write_scripts: error: $script holds another launch.sh: run jobs/write_scripts.sh" >&2; exit 1; }
  else
    printf '%s\n' "$new" >"$script"
  fi
done
