#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Style and static checks, with the settings that editors pick up. `jobs/setup.sh --lint` installs the tools.
#
#   tests/lint.sh [CHECK...]    all of them, or some of
#     format                    clang-format 14 (.clang-format): C++ and CUDA
#     shell                     shellcheck (.shellcheckrc)
#     python                    ruff (pyproject.toml)
#     tidy                      clang-tidy 16 (.clang-tidy): the value layers
#
# FIX=1 formats instead of checking. Exit code 1: findings; 77: none, but a tool is missing.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH=$PATH:$(echo "${TRIREME_CACHE:-$HOME/.cache/trireme}"/ruff-*)

sources() { # sources PATTERN...: files of the repository
  local pattern names=(-false)
  for pattern; do names+=(-o -name "$pattern"); done
  find .ci include inputs jobs spack src tests -type f \( "${names[@]}" \) -print0
}

check_format() {
  local how=(--dry-run -Werror)
  [[ -z ${FIX:-} ]] || how=(-i)
  sources '*.cpp' '*.hpp' '*.cu' '*.cuh' | xargs -0 clang-format-14 "${how[@]}"
}

check_shell() { jobs/write_scripts.sh --check && sources '*.sh' '*.sbatch' run | xargs -0 shellcheck --severity=warning; }
# A file per layer that includes its sources: the headers are read once, and no build is needed.
check_tidy() {
  local layer layers units rc=0
  read -ra layers < <(sed -n 's/^VALUES = "\(.*\)".*/\1/p' tests/layering_test.py)
  ((${#layers[@]} > 0)) || { echo "lint: tidy: tests/layering_test.py names no VALUES" >&2; return 1; }
  units=$(mktemp -d)
  for layer in "${layers[@]}"; do
    find "$PWD/src/$layer" -name '*.cpp' | sort | sed 's/.*/#include "&"/' >"$units/$layer.cpp"
  done
  wc -l "$units"/*.cpp | sort -rn | sed -n 's/^ *[0-9]* \(\/.*\)/\1/p' |  # the longest first
    xargs -P "$(nproc)" -I {} clang-tidy-16 --quiet --config-file=.clang-tidy {} -- -std=c++20 -Iinclude -Isrc >"$units/log" 2>&1 || rc=1
  grep -v 'warnings\? .*generated\.$' "$units/log"
  rm -r "$units"
  return "$rc"
}

check_python() { ruff check --quiet --no-cache .; }

declare -A tool=([format]=clang-format-14 [shell]=shellcheck [python]=ruff [tidy]=clang-tidy-16)
(($# > 0)) || set -- format shell python tidy
status=0
for check; do
  [[ -n ${tool[$check]:-} ]] || { sed -n '4,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
  if ! command -v "${tool[$check]}" >/dev/null; then
    echo "lint: $check: skipped: ${tool[$check]} is not installed (jobs/setup.sh --lint)"
    ((status == 1)) || status=77
  elif "check_$check"; then
    echo "lint: $check: clean"
  else
    echo "lint: $check: see above"
    status=1
  fi
done
exit $status
