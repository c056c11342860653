# SPDX-License-Identifier: Apache-2.0
#
# Restarts with something else than before, places that cannot be written, saves that others look at, wrong libraries.
# timeout: 300
# Fault, saves: a directory cannot be written (EACCES, EROFS, EDQUOT) -> found before the first step; later as disk
#   full
# Fault, loading: another model, vocabulary, dtype, schedule, seed, sequence length -> refused with both values, or
#   logged
# Fault, loading: a fork with `checkpoint.data = restart` and the same data -> begins at the first sample; its
#   requeued job continues
# Fault, stops: `train.stop_before_limit_seconds` in a run without saves -> warning: the time limit ends the run
# Fault, start: another HDF5, insufficient thread support of MPI -> exit code 5 with found and required
# Fault, start: a refused start -> its message alone with `error:`; run.toml stays, no lock is left
# Fault, start: a finished run, or another run file, in `run.output` -> "nothing to do" with the remedy;
#   `run.overwrite` begins anew
# Fault, start: a second job reads -> it sees only committed checkpoints
# Fault, data: bad token files; binary, JSON or damaged compressed text -> reported at the start, or at first use
source "$TRIREME_SOURCE/tests/cli/small_run.sh"
source "$TRIREME_SOURCE/tests/support/processes.sh"

sed -e 's/^at_end = .*/every = 2/' -i run.toml
job 2 train run.toml
expect_done
long_saves=$(sed -n 's/^saved .*, \([0-9.]*\) s in the background.*/\1/p' out.txt | awk '$1 >= 1' | wc -l)  # on a busy disk
(($(grep -c 'still in progress' err.txt) <= long_saves)) || fail 'a warning of waits that nobody notices'
# Finished: reported with a remedy. run.toml is that of the steps in metrics.jsonl, which plan --compare reads.
cp out/run.toml trained.toml
job 2 train run.toml --set batch.micro=1
expect_done
cmp out/run.toml trained.toml || fail 'a start that had nothing to do wrote run.toml'
job 2 train run.toml
expect_done
grep -q '^nothing to do: 6 of 6 steps; raise train.steps to extend' out.txt || fail 'a finished run does nothing without a word'
[[ $(wc -l <out/metrics.jsonl) == 6 ]] || fail 'a finished run changed its metrics'
cp out/run.toml before.toml
# Changed: refused with both values, before anything is computed or moved away.
refused() {  # refused SETTING TEXT...
  local setting=$1
  shift
  job 2 train run.toml --set train.steps=8 --set "$setting"
  expect_end 4 'out/checkpoints/step-0000000' "$@"
  [[ $(ls out/checkpoints) == $'step-00000004\nstep-00000006' ]] || fail "$setting: left are $(ls out/checkpoints)"
  cmp out/run.toml before.toml || fail "$setting: a refused start wrote run.toml"
  ! grep -E 'left behind|MPI_ABORT' err.txt || fail "$setting: the refusal before left a lock, or the job was aborted"
  grep -q '^trireme: error: out/checkpoints' err.txt || fail "$setting: not the message alone"
}
refused model.layers=3 'model.layers: saved 2, now 3'
refused model.vocab_size=259 'model.vocab_size: saved 257, now 259'
refused model.tie_embeddings=true 'model.tie_embeddings: saved false, now true'
refused model.rope_theta=5000 "model.rope_theta: saved 10000.0, now 5000.0"
refused data.seq_len=16 'data.seq_len: saved 32, now 16' 'checkpoint.data = restart'
refused data.shuffle=false 'data.shuffle: saved true, now false'
refused run.seed=99 'data.seed: saved 1234, now 99'
cp tokens.bin kept.bin
printf '\x41' | dd of=tokens.bin bs=1 seek=64 conv=notrunc 2>/dev/null
refused train.eval_every=0 'data.train[0]: saved' 'now'
cp kept.bin tokens.bin
rm tokens.bin.meta  # a sidecar refuses tokens of another size
truncate -s -2 tokens.bin
refused train.eval_every=0 'data.train[0]: saved' 'now'
mv kept.bin tokens.bin
# Changes that are allowed are reported.
cp -r out kept
for setting in optimizer.lr=0.001 precision.compute=bf16 batch.global=8 mesh.replicate=2; do
  job 2 train run.toml --set train.steps=7 --set "$setting"
  expect_done
  grep -Eq "settings changed since the checkpoint: .*${setting%%=*}: saved .*, now \"?${setting#*=}" err.txt || fail "$setting is not reported"
  rm -rf out
  cp -r kept out
done

# run.overwrite starts over if a run is finished, or is of another run file; an interrupted one resumes.
again=(--set run.overwrite=true --set checkpoint.keep=9)
for steps in 6 8; do
  job 2 train run.toml "${again[@]}" --set train.steps=$steps
  expect_done
  grep -q 'run.overwrite = true: starting over' err.txt || fail "overwrite of a run of 6 steps by one of $steps: no message"
  json_check "assert [r['step'] for r in rows] == list(range(1, $steps + 1)) and rows[0]['restart_count'] == 0, rows" out/metrics.jsonl
  grep -q "^steps = $steps " out/run.toml || fail 'an accepted start does not write run.toml'
done
rm -rf out
TRIREME_FAULT=step.begin:usr1:1:3 job 2 train run.toml "${again[@]}" --set train.steps=1000
((status == 75)) || fail "exit code $status of a run that was stopped"
stopped=$(wc -l <out/metrics.jsonl)
TRIREME_FAULT=step.begin:usr1:1:$((stopped + 2)) job 2 train run.toml "${again[@]}" --set train.steps=1000
((status == 75)) || fail "exit code $status of a run that was stopped again"
grep -q "step $stopped\$" err.txt || fail 'a run that was stopped begins anew when its command is given again'
json_check 'assert [r["step"] for r in rows] == list(range(1, len(rows) + 1))' out/metrics.jsonl
rm -rf out && cp -r kept out

# A run's own run.toml can be the input: it stays unchanged.
cp out/run.toml given.toml
cp -r out kept-out
job 2 train out/run.toml --set train.steps=7
expect_done
cmp out/run.toml given.toml || fail 'the run file that was given has changed'
grep -q '^steps = 7 ' out/run.effective.toml || fail 'the effective run file is not there'
rm -r out && mv kept-out out

# Places that cannot be written: found before the first step.
touch a-file
job 2 train run.toml --set run.output=elsewhere --set checkpoint.directory=a-file
expect_end 4 'a-file: cannot list it: Not a directory'
job 2 train run.toml --set run.output=a-file
expect_end 8 'run.output a-file' 'cannot be created'
mkdir read-only
if mount -t tmpfs -o ro,size=1m none read-only 2>/dev/null; then
  job 2 train run.toml --set run.output=elsewhere2 --set checkpoint.directory=read-only
  expect_end 8 'read-only' 'Read-only file system'
  [[ ! -s elsewhere2/metrics.jsonl ]] || fail 'it computed before it looked'
else
  not_tried 'a read-only file system: a tmpfs cannot be mounted'
fi

# A wait that is noticed is a warning: 5 s, less the next step.
slow=$(printf 'ckpt.manifest:slow:0:1,%.0s' {1..100})
TRIREME_FAULT=${slow%,} job 2 train run.toml --set run.output=waits --set checkpoint.every=1 --set train.steps=3
expect_done
[[ $(grep -c 'the save of step 2 is still in progress: training waits' err.txt) == 1 ]] || fail 'a wait for a save without a word'

# A save in progress stays untouched: other commands see the committed checkpoints.
# shellcheck disable=SC2086  # several options in one variable
TRIREME_FAULT=ckpt.manifest:stop:0:3 $MPIEXEC $MPIEXEC_FLAGS -n 2 "$TRIREME" train run.toml --set run.output=stands \
  --set train.steps=100000 --set comm.timeout_seconds=600 >first.txt 2>&1 &
first=$!
await_stopped $first
program verify stands/checkpoints/step-00000002
expect_done
program verify stands/checkpoints/.step-00000004.partial
expect_end 4 '1 damage found'
grep -q 'COMMIT: is missing' out.txt || fail 'a save under way passes for a checkpoint'
job 2 train run.toml --set run.output=looks-on --set checkpoint.resume=stands/checkpoints/step-00000002 --set train.steps=3
expect_done
[[ -d stands/checkpoints/.step-00000004.partial ]] || fail 'another job cleaned up'
# The same by a job that does not save, in the very same directory.
job 2 train run.toml --set run.output=looks-on-too --set checkpoint.directory=stands/checkpoints --set checkpoint.every=0 \
  --set checkpoint.at_end=false --set train.steps=3
expect_done
grep -q 'stands/checkpoints/step-00000002: step 2' err.txt || fail 'it did not take what is committed'
[[ -d stands/checkpoints/.step-00000004.partial ]] || fail 'a job that does not save cleaned up'
job 2 train run.toml --set run.output=saves-nothing --set checkpoint.directory=stands/checkpoints --set checkpoint.every=0 \
  --set checkpoint.at_end=false --set train.steps=3 --set train.stop_before_limit_seconds=30
expect_done
[[ $(grep -c 'train.stop_before_limit_seconds has no effect' err.txt) == 1 ]] || fail 'no warning that a run without saves does not stop'
[[ -d stands/checkpoints/.step-00000004.partial ]] || fail 'a job that saves nothing cleaned up'
# shellcheck disable=SC2046  # a number each
kill -KILL $(processes_of $first)
wait $first 2>/dev/null || true

# A fork with checkpoint.data = restart begins at the first sample of the same data; the job that is requeued continues.
fork=(--set run.output=fork --set checkpoint.resume=stands/checkpoints/step-00000002 --set checkpoint.data=restart
      --set checkpoint.every=1 --set checkpoint.keep=9)
samples() { program inspect "fork/checkpoints/step-0000000$1"; grep -oE '[0-9]+ samples' out.txt; }
job 2 train run.toml "${fork[@]}" --set train.steps=3
expect_done
grep -q 'restart: another run begins with this checkpoint; starting at the first sample' err.txt || fail 'a fork does not restart its data'
[[ $(samples 3) == '16 samples' ]] || fail "a fork is at $(samples 3)"
job 2 train run.toml "${fork[@]}" --set train.steps=4 --set checkpoint.resume=auto
expect_done
grep -q 'restart is not needed' err.txt || fail 'no line that nothing restarts'
[[ $(samples 4) == '32 samples' ]] || fail "the resumed fork is at $(samples 4)"

# Libraries that are others than those it was built with: what was found, what is needed.
if command -v cc >/dev/null; then
  echo 'int H5get_libversion(unsigned *a, unsigned *b, unsigned *c) { *a = 1; *b = 99; *c = 7; return 0; }' >hdf5.c
  cc -shared -fPIC -o hdf5.so hdf5.c
  last='with another HDF5'
  # shellcheck disable=SC2086  # several options in one variable
  launch $MPIEXEC $MPIEXEC_FLAGS -n 2 env LD_PRELOAD="$work/hdf5.so" "$TRIREME" train run.toml --set run.output=other-hdf5
  expect_end 5 'HDF5 1.99.7' 'built with'
  [[ ! -s other-hdf5/metrics.jsonl ]] || fail 'it computed before it looked'
  # Also in a run that only reads, and in the commands, before any other call of HDF5.
  launch env LD_PRELOAD="$work/hdf5.so" "$TRIREME" train run.toml --set run.output=other-hdf5 --set checkpoint.every=0 --set checkpoint.at_end=false \
    --set checkpoint.resume=stands/checkpoints/step-00000002
  expect_end 5 'HDF5 1.99.7' 'built with'
  [[ ! -s other-hdf5/metrics.jsonl ]] || fail 'it computed before it looked'
  launch env LD_PRELOAD="$work/hdf5.so" "$TRIREME" verify stands/checkpoints/step-00000002
  ((status == 5)) || fail "verify with another HDF5: exit code $status"
  grep -q 'HDF5 1.99.7' err.txt || fail 'verify does not say which HDF5 it found'
  printf '%s\n' 'int PMPI_Init_thread(int *, char ***, int, int *);' \
    'int MPI_Init_thread(int *c, char ***v, int need, int *got) { int e = PMPI_Init_thread(c, v, need, got); *got = 1; return e; }' >mpi.c
  cc -shared -fPIC -o mpi.so mpi.c
  # shellcheck disable=SC2086  # several options in one variable
  launch $MPIEXEC $MPIEXEC_FLAGS -n 1 env LD_PRELOAD="$work/mpi.so" "$TRIREME" train run.toml --set run.output=few-threads
  ((status == 5)) || fail "few threads of MPI: exit code $status"
  grep -q 'MPI_THREAD_MULTIPLE' err.txt || fail 'few threads of MPI: what is needed is not said'
else
  not_tried 'another HDF5, few threads of MPI: there is no cc'
fi
