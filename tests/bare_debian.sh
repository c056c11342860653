#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# README's two commands on a bare Debian 12: a root of its minimal packages, without CUDA, git, caches or user settings.
# A user who may not install gets a list of the missing packages; root gets from a copy of this checkout to a trained
# model and through the tests of the value layers. Needs root, a Debian mirror (the machine's own) and a package index
# for pip; takes half an hour on two cores and 12 GB of disk. Run before an issue is closed, not in every CI.
#
#   tests/bare_debian.sh [FOLDER]     the root in a new folder in FOLDER (default: /var/tmp), removed at the end
#
# Exit code 77: what it needs is not here.
set -euo pipefail

source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
readonly source
# shellcheck source=tests/install/debian_root.sh
source "$source/tests/install/debian_root.sh"

for program in git cmake g++ python3 nvcc sudo; do
  ! chroot "$root" sh -c "command -v $program" >/dev/null || fail "$program is there: this root is not bare"
done

mkdir "$root/trireme"
(cd "$source" && { git ls-files -z 2>/dev/null || find . -path ./build -prune -o -type f -print0; } | tar --null --no-recursion -T - -c) | tar -x -C "$root/trireme"
chroot "$root" useradd --create-home someone

say "a user who may not install"
for command in jobs/quickstart.sh 'tests/run.sh -L values'; do
  status=0
  inside someone "cd && /trireme/$command" >"$work/someone.log" 2>&1 || status=$?
  cat "$work/someone.log"
  ((status == 5)) || fail "$command: exit code $status, expected 5"
  missing=$(grep '^setup: error: these packages are missing and need root to install: ' "$work/someone.log") ||
    fail "$command does not list the missing packages"
  for package in g++ cmake ninja-build libopenmpi-dev libhdf5-openmpi-dev libgtest-dev python3 python3-pip unzip; do
    [[ " $missing " == *" $package "* ]] || fail "$command does not list $package"
  done
  [[ $(grep -c . "$work/someone.log") -le 12 ]] || fail "$command prints more than the missing packages"
done

say "root: jobs/quickstart.sh"
inside root 'cd && /trireme/jobs/quickstart.sh' || fail "quickstart: exit code $?"
inside root 'test -s ~/runs/quickstart/metrics.jsonl && test -s ~/runs/quickstart/export/model.safetensors' || fail "quickstart left nothing"
say "root: tests/run.sh -L values"
inside root 'cd && /trireme/tests/run.sh -L values' || fail "tests: exit code $?"
say "passed in $SECONDS s"
