# SPDX-License-Identifier: Apache-2.0
#
# Help, version, plan and tokenize need no MPI: they work where MPI_Init would end the program.
# timeout: 300
# Fault, plans: `plan --search` with no candidate, or none that fits -> exit code 2 with the reason; no file
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

export OMPI_MCA_pml=nowhere OMPI_MCA_btl=nowhere PMIX_MCA_gds=nowhere  # for Open MPI
export UCX_TLS=nowhere                                                 # for Debian's MPICH
program doctor
((status != 0)) || fail "MPI_Init works in an environment that was to break it: this test proves nothing"

for arguments in --help --version "train --help" "plan --help" "tokenize --help" "generate --help" "doctor --help"; do
  # shellcheck disable=SC2086
  program $arguments
  expect_done
  [[ ! -s err.txt ]] || fail "something on standard error"
done
program --version
grep -q '^trireme 0\.' out.txt && grep -qE '^MPI (Open MPI|MPICH)' out.txt || fail "no versions"
program --help
for word in train plan tokenize generate evaluate report doctor "Exit codes:" "mpirun -n 4"; do
  grep -q -- "$word" out.txt || fail "--help lacks $word"
done
for command in train plan tokenize generate evaluate report doctor; do
  program $command --help
  grep -q "^Examples:" out.txt || fail "$command --help has no examples"
done

program plan run.toml --ranks 4
expect_done
grep -q "2 microbatches a step" out.txt || fail "plan"
program plan run.toml --ranks 4 --show schedule
expect_done
grep -q "unshard b1" out.txt || fail "plan --show schedule"
program plan --machine h100 --ranks 2,4 run.toml
expect_done
grep -q "tokens/s" out.txt || fail "plan --ranks 2,4"
program plan --machine h100 --ranks 3,2,4 run.toml
expect_done
[[ $(grep -cE "^[24] .* fits$" out.txt) == 2 ]] || fail "plan --ranks 3,2,4: no rows of those that the run file fits"
grep -q "^3 ranks: " out.txt || fail "plan --ranks 3,2,4: no reason for 3"
program plan --machine h100 --ranks 3,5 run.toml
expect_end 2 "fits none of these ranks" "3 ranks: " "5 ranks: "
for ranks in 2 2,4; do
  program plan --machine h100 --ranks "$ranks" run.toml --set 'optimizer.no_decay=["*nrom*"]'
  expect_end 2 "nrom"
done
program plan --machine h100 --ranks 2,4 --search run.toml
expect_end 2 "several --ranks give a scaling table"
program plan run.toml --ranks 1 --machine h100
expect_done
head -n 1 out.txt | grep -qE "^fits: .* on 1 rank of h100 \(1 node; .*\), .* tokens/s, MFU .*, host memory 0 B of .* a node$" ||
  fail "no verdict first: $(head -n 1 out.txt)"
grep -q "^host memory of a node: 0 B of 1.82 TiB (1 rank)$" out.txt || fail "no line about host memory"
[[ $(tail -n 1 out.txt) == "start it: mpirun -n 1 trireme train run.toml" ]] || fail "no start line last: $(tail -n 1 out.txt)"
# The start line has exactly the planned ranks on nodes that exist, and the settings that were planned.
while read -r ranks line; do
  program plan run.toml --ranks "$ranks" --machine h100 --set batch.global=96 --set batch.micro=1 --set 'run.name=a b'
  [[ $(tail -n 1 out.txt) == "start it: $line --set batch.global=96 --set batch.micro=1 --set 'run.name=a b'" ]] ||
    fail "plan on $ranks ranks of h100 ends with: $(tail -n 1 out.txt)"
done <<'EOF'
8 mpirun -n 8 trireme train run.toml
12 trireme submit run.toml --nodes 2 --gpus-per-node 6
16 trireme submit run.toml --nodes 2 --gpus-per-node 8
EOF
program plan run.toml --ranks 16 --machine h100 --set batch.global=96 --set batch.micro=1 --set memory.budget=1000
[[ $(head -n 1 out.txt) == "DOES NOT FIT"* ]] && ! grep -q "^start it" out.txt || fail "a run that does not fit is to be started"
program plan run.toml --ranks 4
grep -q "^host memory of a node: .* (4 ranks)$" out.txt || fail "no line about host memory without a machine"
program plan run.toml --ranks 4 --machine local --trace trace.json
expect_done
grep -q '"traceEvents"' trace.json || fail "plan --trace"
program plan run.toml --ranks 4 --show time
expect_end 2 "time needs a machine"
program plan run.toml --ranks 4 --show passes
[[ $(grep -c "^assign_slots " out.txt) == 2 ]] || fail "plan --show passes lists the passes of both schedules"
[[ $(grep -c "^insert_update " out.txt) == 1 ]] || fail "plan --show passes: only training updates"
program plan run.toml --ranks 4 --search
expect_end 2 "time needs a machine"
program plan run.toml --ranks 4 --machine h100 --search
expect_done
grep -q "^written: run-best.toml" out.txt || fail "plan --search writes no run file"
[[ $(tail -n 1 out.txt) == "start it: mpirun -n 4 trireme train run-best.toml" ]] || fail "plan --search: no start line"
[[ ! -s err.txt ]] || fail "a progress line where no terminal is"
first=$(awk '$1 == 1 {print $2; exit}' out.txt)
program plan run-best.toml --ranks 4 --machine h100
expect_done
grep -q "tokens/s $first " out.txt || fail "the written run file is not the first of the table: $first"
script -qec "$TRIREME plan run.toml --ranks 4 --machine h100 --search -o other.toml" /dev/null </dev/null | tr '\r' '@' >seen.txt
grep -q '@.\[Ksearch: [0-9]* of [0-9]* candidates, ' seen.txt || fail "no progress line on a terminal: $(cat seen.txt)"
cmp run-best.toml other.toml || fail "-o, or another best"
echo '# mine' >>other.toml && cp other.toml before.toml
program plan run.toml --ranks 4 --machine h100 --search -o other.toml
expect_end 2 'other.toml exists and is left as it is'
cmp other.toml before.toml || fail 'a search wrote over an edited file'

# No candidate, none that fits, and the run file as the best are distinguished; without a file the command fails.
program plan run.toml --ranks 64 --machine h100 --search -o none.toml --set batch.global=4 --set mesh.pipeline=4 \
  --set mesh.tensor=4 --set mesh.replicate=2 --set model.layers=4 --set model.heads=4 --set model.kv_heads=4 \
  --set pipeline.schedule=gpipe --set batch.micro=1
expect_end 2 "none.toml is not written: No candidate: batch.global = 4 cannot be divided"
program plan run.toml --ranks 4 --machine h100 --search -o none.toml --set memory.budget=1000
expect_end 2 "none.toml is not written: Nothing fits: "
[[ ! -e none.toml ]] || fail "a search without a result wrote a file"
program plan run-best.toml --ranks 4 --machine h100 --search -o again.toml
expect_done
grep -q "^The run file is the best of them.$" out.txt || fail "the best is not the best"
[[ -e again.toml ]] || fail "the best is not written"

program plan run.toml --ranks 4 --machine h100 --tokens 2T
expect_done
grep -q "suggested: checkpoint.every = " out.txt || fail "plan --tokens suggests no checkpoint.every"
suggested() { sed -n 's/^suggested: checkpoint.every = \([0-9]*\) .*/\1/p' out.txt; }
often=$(suggested)
program plan run.toml --ranks 4 --machine h100 --tokens 2T --checkpoint-minutes 600
(($(suggested) > often)) || fail "--checkpoint-minutes 600: no rarer than $often steps"
program plan run.toml --ranks 4 --machine h100 --tokens 2X
expect_end 2 "2X" "such as 300M"
program plan --compare .
expect_end 2 "holds no metrics.jsonl"

# It starts at once: of the libraries that the full program loads it needs none of the large ones, and it is whole without.
LD_TRACE_LOADED_OBJECTS=1 "$TRIREME" >libraries.txt
grep -q libfmt libraries.txt || fail "no list of libraries: $(cat libraries.txt)"
! grep -E 'torch|libmpi|libhdf5|kokkos|cuda|sentencepiece' libraries.txt || fail "trireme loads a library that plan needs not"
mkdir alone && cp "$TRIREME" alone/trireme
launch alone/trireme plan run.toml --ranks 4
expect_done
launch alone/trireme train run.toml
expect_end 5 "libexec/trireme/trireme is missing"
# Help and the mistakes of a run file are its own, too: the page that the full program prints.
launch alone/trireme --help
expect_done
"$(dirname "$TRIREME")/libexec/trireme/trireme" --help >full.txt || fail "no help from the full program"
cmp out.txt full.txt || fail "the two programs print different help"
launch alone/trireme train --help
expect_done
grep -q "checkpoint.every" out.txt || fail "train --help lists no keys"
sed 's/^micro = 2/micros = 2/' run.toml >mistaken.toml
launch alone/trireme train mistaken.toml
expect_end 2 "batch.micros: unknown key"
launch alone/trireme train missing.toml
expect_end 2 "missing.toml"
# It finds the full program by its own place, as a link and by PATH, too, and is replaced by it: the same process, whose
# name is the program's.
mkdir -p libexec/trireme && ln -s alone/trireme started
printf '#!/bin/bash\necho "$$ ${0##*/} $(cat /proc/$$/comm) $*"\n' >libexec/trireme/trireme && chmod +x libexec/trireme/trireme
PATH=$work:$PATH bash -c 'echo "$$ trireme trireme train a b" >expected.txt; exec started train a b' >out.txt || fail "no start through a link"
cmp expected.txt out.txt || fail "another process: $(cat expected.txt out.txt)"

program plan run.toml --ranks 4 --set mesh.pipeline=2 --show pipeline
expect_done
grep -q "^1  *1F0" out.txt || grep -q "0F1  *1F0" out.txt || fail "plan --show pipeline has no action grid"
grep -q "^by formula, F = I = W  *[0-9.]*% = 3 / " out.txt || fail "plan --show pipeline has no bubble"
program plan run.toml --ranks 4 --set mesh.pipeline=2 --show schedule --pipeline-rank 1
expect_done
grep -q "receive e0 m0 <- p0 -> in0.0" out.txt || fail "plan --show schedule of a pipeline rank"
program plan run.toml --ranks 4 --set mesh.pipeline=2
expect_done
grep -q "^pipeline send" out.txt || fail "plan of a pipeline has no traffic"
program plan run.toml --ranks 4,8 --set mesh.pipeline=2 --machine h100
expect_done
grep -q "^8  *pipeline 2: 1 x 4 x 1" out.txt || fail "no scaling table of a pipeline"
program plan run.toml --ranks 4 --set mesh.pipeline=2 --machine h100 --pipeline-rank 1 --show time --trace rank1.json
expect_done
grep -q "^send e0 m0 gradient" out.txt || fail "plan --show time of a pipeline rank"
grep -q "receive e0 m0 <- p0" rank1.json || fail "the trace of a pipeline rank"
program plan run.toml --ranks 4 --set mesh.pipeline=2 --machine h100 --pipeline-rank 2
expect_end 2 "pipeline ranks are 0 to 1"
program plan run.toml --ranks 4 --show pipeline
expect_end 2 "require mesh.pipeline > 1"
# device.type = "auto" is what the machine computes on.
for machine in h100=cuda local=cpu; do
  program plan run.toml --ranks 4 --machine "${machine%=*}" --set device.type=auto
  expect_done
  sed '$s/device.type=auto/device.type='"${machine#*=}/" out.txt >automatic.txt
  program plan run.toml --ranks 4 --machine "${machine%=*}" --set device.type="${machine#*=}"
  cmp out.txt automatic.txt || fail "plan --machine ${machine%=*}: device.type = auto is not ${machine#*=}"
  mv automatic.txt "${machine#*=}.txt"
done
! cmp -s cuda.txt cpu.txt || fail "plan: a GPU's bytes are a CPU's"
printf 'model,gpu\n' > runs.csv
program plan --validate runs.csv
expect_end 2 "runs.csv:1:1: missing columns"
program plan run.toml --ranks 3
expect_end 2 "3 ranks" "batch.global"
program tokenize --tokenizer bytes -o again.bin text.txt
expect_done
cmp tokens.bin again.bin || fail "tokenize"

# Usage mistakes.
program
expect_end 2 "--help"
program fly
expect_end 2 "--help"
program plan run.toml
expect_end 2 "--ranks"
program plan nowhere.toml --ranks 2
expect_end 2 "nowhere.toml"
program tokenize --tokenizer letters -o x.bin text.txt
expect_end 2 "letters" "bytes"
TRIREME_LOG=loud program --version
expect_end 2 "TRIREME_LOG" "debug, info"
# A reader that goes away ends a short command quietly; a full disk does not pass for success.
"$TRIREME" plan run.toml --ranks 4 --show schedule 2>err.txt | head -n 1 >/dev/null || true
[[ ! -s err.txt ]] || fail "plan | head"
status=0
"$TRIREME" plan run.toml --ranks 4 >/dev/full 2>err.txt || status=$?
((status == 8)) || fail "plan > /dev/full ended with $status"

# Every key of the effective run file is in `train --help`, on a separate line.
program train --help
cat out.txt >help.txt
awk -F'[][ =]+' '/^\[/ { section = $2 } /^[a-z]/ { print section "." $1 }' "$TRIREME_SOURCE/inputs/quickstart.toml" >keys.txt
(($(wc -l <keys.txt) > 20)) || fail "few keys"
while read -r key; do grep -q "^$key " help.txt || fail "train --help does not list $key"; done <keys.txt
