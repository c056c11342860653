# SPDX-License-Identifier: Apache-2.0
#
# Poor surroundings do not stop a run, and who reads standard output decides what it looks like.
# timeout: 300
# Fault, start: no HOME, TMPDIR or output, LANG=C, closed streams, removed directory, launcher variables,
#   OMP_NUM_THREADS -> works, or exit code 5 with the cause
# Fault, files: output while a terminal shows a progress line -> begins a line; no control characters in files, pipes
#   or with `NO_COLOR`
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

trains() {
  rm -rf out
  job 2 train run.toml
  expect_done
  json_check 'assert len(rows) == 6' out/metrics.jsonl
}
trains
cp out/metrics.jsonl usual.jsonl
same_losses='assert [r["loss"] for r in rows] == [json.loads(line)["loss"] for line in open(files[1])]'

(unset HOME && trains)
(export LANG=C LC_ALL=C && trains)
json_check "$same_losses" out/metrics.jsonl usual.jsonl
(export OMP_NUM_THREADS=0 && trains)
(export OMP_NUM_THREADS=abc && trains)
(export OMP_NUM_THREADS=2,1 && trains)
(export OMP_NUM_THREADS=100000 && job 2 train run.toml --set run.output=many && expect_end 5 'OMP_NUM_THREADS = 100000, but ' 'threads a rank')
# A shell that inherited the variables of a rank of mpirun, without the first one: the error is printed all the same.
for rank in 0 1; do
  launch env OMPI_COMM_WORLD_SIZE=4 "OMPI_COMM_WORLD_RANK=$rank" "$TRIREME" train run.toml --set run.output=shell
  expect_end 5 "started 4 tasks, but MPI sees 1 rank"
done
# A working directory that was removed.
mkdir removed
launch bash -c "cd removed && rmdir ../removed && exec '$TRIREME' train '$work/run.toml'"
expect_end 5 'the working directory cannot be read'
# A directory that cannot be written: ignored as home, rejected otherwise. Root, too, is subject to permissions once it lacks the
# capability to override them.
mkdir read-only && chmod 500 read-only
obeying=()
# shellcheck disable=SC2054  # lists of capabilities
((EUID != 0)) || obeying=(setpriv --bounding-set=-dac_override,-dac_read_search --inh-caps=-dac_override,-dac_read_search)
if "${obeying[@]}" mkdir read-only/probe 2>/dev/null || ! "${obeying[@]}" true 2>/dev/null; then
  not_tried 'directories that cannot be written: root may write everywhere here'
else
  (export HOME=$work/read-only && launch "${obeying[@]}" "$TRIREME" train run.toml --set run.overwrite=true && expect_done)
  json_check 'assert len(rows) == 6' out/metrics.jsonl
  if [[ $("$TRIREME" --version) != *MPICH* ]]; then
    launch env TMPDIR="$work/read-only" "${obeying[@]}" "$TRIREME" train run.toml --set run.overwrite=true
    expect_end 5 "TMPDIR $work/read-only: Permission denied; Open MPI requires a directory that you may write to"
  fi
  launch "${obeying[@]}" "$TRIREME" train run.toml --set run.output=read-only/out
  expect_end 8 'run.output read-only/out: cannot be created: Permission denied'
  launch "${obeying[@]}" "$TRIREME" train run.toml --set run.overwrite=true --set checkpoint.at_end=true --set checkpoint.directory=read-only
  expect_end 8 'read-only' 'Permission denied'
  launch "${obeying[@]}" "$TRIREME" tokenize --tokenizer bytes -o read-only/tokens.bin text.txt
  expect_end 8 'read-only/tokens.bin: Permission denied; choose a directory you may write to'
fi
(export TMPDIR=$work/nowhere && program train run.toml --set run.overwrite=true && expect_done)

# Closed streams: no output ends up in files.
rm -rf out
status=0
"$TRIREME" train run.toml <&- >&- 2>&- || status=$?
((status == 0)) || fail "closed streams: exit code $status"
json_check 'assert len(rows) == 6' out/metrics.jsonl
(($(grep -c . out/run.toml) > 50)) && ! grep -q "^step=" out/run.toml || fail "run.toml was written into"

# A reader that goes away, and a full disk, are reported, and the run continues.
rm -rf out
mkfifo reader
# The training stops until the reader is gone.
TRIREME_FAULT=step.begin:stop:0:2 "$TRIREME" train run.toml >reader 2>err.txt &
pid=$!
head -n 1 <reader >out.txt
while [[ $(ps -o state= -p $pid) == [!TZ] ]]; do sleep 0.05; done
kill -CONT $pid 2>/dev/null || true
wait $pid || fail "train | head"
json_check 'assert len(rows) == 6' out/metrics.jsonl
grep -q "warning standard output cannot be written" err.txt || fail "no warning of a reader that went away"
rm -rf out
"$TRIREME" train run.toml >/dev/full 2>err.txt || fail "train > /dev/full"
grep -q "No space left" err.txt || fail "no warning of a full disk"

# A terminal that is closed: saved as on any other signal, but under nohup training continues.
for with in '' nohup; do
  rm -rf out
  TRIREME_FAULT=step.begin:stop:0:2 $with "$TRIREME" train run.toml --set checkpoint.at_end=true >out.txt 2>err.txt &
  pid=$!
  while [[ $(ps -o state= -p $pid) == [!TZ] ]]; do sleep 0.05; done
  kill -HUP $pid
  kill -CONT $pid
  status=0
  wait $pid || status=$?
  ((status == (${#with} ? 0 : 75))) || fail "SIGHUP ${with:-without nohup}: exit code $status"
  [[ -n $with ]] || grep -q 'SIGHUP: saving and stopping' err.txt out.txt || fail 'SIGHUP stops a run without a word'
done

# A person at mpirun's terminal sees one line that rewrites itself; a file, a pipe and NO_COLOR get plain lines. MPICH's
# launcher gives ranks pipes, so plain lines.
mpi=$("$TRIREME" --version | sed -n 's/^MPI //p')
watched() { script -qec "$1" /dev/null </dev/null | tr '\r' '@' >seen.txt; }
rm -rf out
export TERM=xterm
run="$MPIEXEC $MPIEXEC_FLAGS -n 2 $TRIREME train run.toml --set run.overwrite=true"
if [[ $mpi == MPICH* ]]; then
  watched "$run"
  grep -q '^step=6 loss=' seen.txt || fail "no plain lines in MPICH's pipe: $(cat seen.txt)"
else
  watched "$run"
  grep -q '@.\[Kstep 6/6  loss ' seen.txt || fail "no progress line on a terminal: $(cat seen.txt)"
  watched "$run --set checkpoint.every=2 --set checkpoint.async=false"
  grep -q '^saved ' seen.txt && ! grep -q '[^@]saved ' seen.txt || fail "a save does not begin a line on a terminal: $(cat seen.txt)"
  watched "TRIREME_FAULT=grad.reduce:nan:0:2 $run"
  grep -q '@.\[K2[-0-9]*T[0-9:.]*Z warning step 3:' seen.txt || fail "a warning does not wipe the progress line: $(cat seen.txt)"
fi
watched "TRIREME_FAULT=grad.reduce:nan:0:2 $run 2>err.txt"
grep -q '^2[-0-9]*T[0-9:.]*Z warning step 3:' err.txt || fail "a warning in a file wipes nothing: $(cat err.txt)"
watched "NO_COLOR=1 $run"
grep -q '^step=6 loss=' seen.txt || fail "NO_COLOR is not honoured: $(cat seen.txt)"
watched "TERM=dumb $run"
grep -q '^step=6 loss=' seen.txt || fail "TERM=dumb is not honoured: $(cat seen.txt)"
watched "$run >file.txt"
grep -q '^step=6 loss=' file.txt || fail "no plain lines in a file"
watched "$run | cat"
grep -q '^step=6 loss=' seen.txt || fail "no plain lines in a pipe: $(cat seen.txt)"
! grep -q $'\033' seen.txt file.txt || fail "control characters where no terminal is: $(cat -v seen.txt file.txt)"
rm -rf out
watched "$TRIREME train run.toml --log-every 4 | cat"
[[ $(sed -n 's/^step=\([0-9]*\) loss.*/\1/p' seen.txt | tr '\r\n' '  ') =~ ^1\ +4\ +6\ +$ ]] || fail "--log-every 4: $(cat seen.txt)"
json_check 'assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]' out/metrics.jsonl
watched "$MPIEXEC $MPIEXEC_FLAGS -n 2 sh -c '$TRIREME train run.toml --set run.overwrite=true; true' >file.txt"
grep -q '^step=6 loss=' file.txt || fail "a shell between mpirun and trireme hides the file"
watched "$TRIREME train run.toml --set run.overwrite=true"
grep -q '@.\[Kstep 6/6  loss ' seen.txt || fail "no progress line without mpirun: $(cat seen.txt)"

# Under Slurm the job is named, and too few cores are a warning with numbers.
rm -rf out
SLURM_JOB_ID=12 SLURM_JOB_NODELIST='n[1-2]' SLURM_RESTART_COUNT=3 SLURM_CPUS_ON_NODE=1 job 2 train run.toml
expect_done
grep -q '^job      Slurm 12 on n\[1-2\], restart 3$' out.txt || fail "the banner does not name the job"
grep -q "warning .*2 ranks of 1 thread need 2 cores, the job has 1 there" err.txt || fail "no warning of few cores"
json_check 'assert all(r["restart_count"] == 3 for r in rows)' out/metrics.jsonl

# A GPU that is not there, or is hidden, is refused before anything is written.
rm -rf out
job 2 train run.toml --set device.type=cuda
expect_end 5 'device.type = "cuda", but ' 'device.type = "cpu"'
expect_no_output
program plan run.toml --ranks 4 --set device.type=cuda
expect_done

# A launcher that MPI does not know of would train the model once a task.
rm -rf out
SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0 program train run.toml
expect_end 5 "srun started 4 tasks" "--mpi=$([[ $mpi == MPICH* ]] && echo pmi2 || echo pmix)"
expect_no_output
