#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The steps of a definition in jobs/ in a fresh root of Debian 12, as Apptainer runs them: %files, %post and %test; then what the image is
# for: tokens, two ranks under mpirun and a sample, by a user who is not root and writes nothing into the image. Needs
# what tests/bare_debian.sh needs, but not Apptainer. Run before an issue is closed, not in every CI.
#
#   tests/apptainer.sh [FOLDER]            jobs/trireme.def; the root in a new folder in FOLDER (default: /var/tmp), removed at the end
#   tests/apptainer.sh --cuda [FOLDER]     jobs/trireme-cuda.def: compiled with CUDA from NVIDIA's wheels, run on CPUs
#
# Exit code 77: what it needs is not here.
set -euo pipefail

source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
readonly source
definition=$source/jobs/trireme.def
if [[ ${1:-} == --cuda || ${APPTAINER_TEST_CUDA:-} == yes ]]; then  # debian_root.sh starts this script again with the folder alone
  definition=$source/jobs/trireme-cuda.def
  export APPTAINER_TEST_CUDA=yes
  [[ ${1:-} != --cuda ]] || shift
fi
readonly definition
# shellcheck source=tests/install/debian_root.sh
source "$source/tests/install/debian_root.sh"

section() { awk -v name="%$1" '/^%/ { on = $1 == name; next } on' "$definition"; }

grep -qx 'From: debian:12' "$definition" || fail "the definition does not begin with the system that this root is"

say "%files"
while read -r from to; do
  [[ -n $from ]] || continue
  mkdir -p "$(dirname "$root/$to")"
  cp -r "$source/$from" "$root/$to" || fail "%files: $from"
done < <(section files)

say "%post"
section post >"$root/post.sh"
inside root 'cd / && sh /post.sh' || fail "%post: exit code $?"
[[ ! -e $root/opt/trireme/source && ! -e $root/opt/trireme/build ]] || fail "sources are left in the image"
du -shx "$root" | sed "s/\t.*/ in the image/"

say "%test"
section test >"$root/test.sh"
inside root 'sh -e /test.sh' || fail "%test: exit code $?"

say "a user of the image"
chroot "$root" useradd --create-home someone
printf 'The ship has three banks of oars and sails to the island with the wind.\n%.0s' {1..400} >"$root/home/someone/book.txt"
run=$(section runscript)
inside someone "$(section environment)
  set -e
  cd
  trireme() { bash -c '$run' trireme \"\$@\"; }
  trireme tokenize --tokenizer bytes -o book.bin book.txt
  trireme init --from tiny --tokenizer bytes --data book.bin --ranks 2 -o first.toml --seq-len 64
  mpirun -n 2 --oversubscribe --bind-to none /opt/trireme/bin/trireme train first.toml --set train.steps=2 --set model.layers=1
  trireme generate runs/first/export --prompt 'The ship' --tokens 8
  trireme doctor
" || fail "a user of the image: exit code $?"
say "passed in $SECONDS s"
