#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# From a fresh machine to a small Llama that has learnt real text on four MPI ranks: installs what is missing, builds,
# makes tokens, trains, writes a sample.
#
#   jobs/quickstart.sh               the King James Bible (public domain, 4.3 MB, a Debian package)
#   jobs/quickstart.sh BOOK.txt      a text of yours
#
# RANKS=2 takes another number of ranks, PROMPT="..." another beginning. Everything that is written goes into runs/ of the
# working directory and into ${TRIREME_CACHE:-~/.cache/trireme}.
set -euo pipefail

source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
readonly source
readonly ranks=${RANKS:-4} prompt=${PROMPT:-In the beginning}
readonly text=${1:-} data=runs/data run=$source/inputs/quickstart.toml output=runs/quickstart
# From its first step, whatever an earlier quickstart left in the output directory, and whatever text that one read.
readonly anew="--set run.overwrite=true --set checkpoint.resume=none"

say() { printf '\nquickstart: %s\n' "$*"; }
fail() { printf 'quickstart: error: %s\n' "$1" >&2; exit "$2"; }

[[ -z $text || -r $text ]] || fail "cannot read the text file $text" 3

# Kernels for GPUs take minutes to compile: they are built where there is a GPU. tests/run.sh builds them everywhere.
setup=()
if [[ ! -e /dev/nvidiactl ]]; then
  setup=(--no-cuda)
  export TRIREME_CMAKE_ARGS="-DTRIREME_CUDA=OFF ${TRIREME_CMAKE_ARGS:-}"
fi

say "1 of 5: what Trireme is built with"
"$source/jobs/setup.sh" "${setup[@]}"

say "2 of 5: the program"
"$source/jobs/build.sh" trireme
PATH=$("$source/jobs/build.sh" --directory):$PATH

say "3 of 5: tokens"
mkdir -p "$data"
if [[ -n $text ]]; then
  book=$text
else
  book=$data/bible-kjv.txt
  # Verse by verse, without the line numbers of the printed page.
  bible Gen1:1-Rev22:21 </dev/null | sed -E 's/^ {0,3}[0-9]+ //' >"$book.tmp"
  mv "$book.tmp" "$book"
fi
trireme tokenize --tokenizer bytes -o "$data/quickstart.bin" "$book"

say "4 of 5: training on $ranks ranks"
# Open MPI needs permission to run as root and with more ranks than cores; ranks share cores here and are not bound.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# shellcheck disable=SC2086  # several arguments in one variable
mpirun -n "$ranks" --oversubscribe --bind-to none trireme train "$run" $anew

say "5 of 5: what it has learnt"
trireme generate "$output/export" --prompt "$prompt" --tokens 300 --temperature 0.7
say "done in ${SECONDS} s. The metrics of every step: $output/metrics.jsonl. Again by hand, from this directory:
  $(command -v trireme) plan $run --ranks $ranks --show schedule
  mpirun -n $ranks --oversubscribe --bind-to none $(command -v trireme) train $run $anew"
