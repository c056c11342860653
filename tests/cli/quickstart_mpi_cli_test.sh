# SPDX-License-Identifier: Apache-2.0
#
# jobs/quickstart.sh from tokens to sample, with a run file of two steps: given again it trains again, with another text too,
# and so does the command that it prints.
source "$TRIREME_SOURCE/tests/cli/small_run.sh"
[[ $MPIEXEC_FLAGS == *oversubscribe* ]] || { echo "the quickstart takes Open MPI's mpirun"; exit 77; }

mkdir -p tree/jobs tree/inputs
cp "$TRIREME_SOURCE/jobs/quickstart.sh" tree/jobs/
sed -E 's/^steps = [0-9]+/steps = 2/; s/^warmup_steps = [0-9]+/warmup_steps = 1/' "$TRIREME_SOURCE/inputs/quickstart.toml" >tree/inputs/quickstart.toml
printf '#!/bin/sh\n' >tree/jobs/setup.sh
printf '#!/bin/sh\necho "%s"\n' "$(dirname "$TRIREME")" >tree/jobs/build.sh
chmod +x tree/jobs/*.sh
for i in {1..400}; do echo "In the beginning was line $i of the first text."; done >first.txt
for i in {1..500}; do echo "The second text is another one, and this is its line $i."; done >second.txt

trained() { # trained WHAT: since the last call
  [[ runs/quickstart/metrics.jsonl -nt marker && $(grep -c '"step"' runs/quickstart/metrics.jsonl) == 2 ]] ||
    { echo "$1: not two steps"; cat out.txt err.txt; exit 1; }
  touch marker
}
touch marker
for book in first.txt first.txt second.txt; do
  RANKS=2 tree/jobs/quickstart.sh "$book" >out.txt 2>err.txt || { echo "quickstart $book: exit code $?"; cat out.txt err.txt; exit 1; }
  trained "quickstart $book"
done
sed -n 's/^  \(mpirun .*\)$/\1/p' out.txt >again.sh
[[ -s again.sh ]] || { echo "no command is printed"; cat out.txt; exit 1; }
bash again.sh >out.txt 2>err.txt || { echo "the printed command: exit code $?"; cat out.txt err.txt; exit 1; }
trained "the printed command"
