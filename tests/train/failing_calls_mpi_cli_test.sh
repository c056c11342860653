# SPDX-License-Identifier: Apache-2.0
#
# System calls that fail in the middle of a save, after every check has passed (tests/support/system_calls): no space, no quota, no
# permission, an I/O error. The training continues, the previous checkpoint stays, no partial files are left, a later save works.
# The same in the last save and before the first step ends the run, with exit code 8.
# timeout: 600
# processors: 2
# Fault, saves: the directory cannot be flushed after the rename -> the rename is undone; the save fails
# Fault, saves: a rank cannot open, write or extend a shared file -> as disk full; no other rank waits
# Fault, saves: `/dev/shm` is full -> saves work
# Fault, saves: no thread to read ahead or to watch file operations -> warning; steps wait for tokens, a save has
#   `comm.timeout_seconds`
# Fault, saves: the file system refuses locks on HDF5 files -> saves work
# Fault, exports: an export during training fails or is killed -> error; training continues; the next start removes
#   the rest
# Fault, exports: the tokenizer's file vanishes during training -> exported as read at the start
# Fault, exports: exports of checkpoints are missing at a start -> the loaded one is written; a warning lists older
#   ones
# Fault, start: interrupted calls (EINTR); an unreadable lock file -> retried; the errno
# Fault, data: unreadable validation files -> at the start exit code 3; later an error, training continues
# Fault, files: unreadable `metrics.jsonl` at a resume (EIO, ESTALE, EMFILE) -> retried for a second, then exit code
#   8; the file is unchanged
source "$TRIREME_SOURCE/tests/cli/small_run.sh"
source "$TRIREME_SOURCE/tests/support/processes.sh"
source "$TRIREME_SOURCE/tests/train/save/failing_calls.sh"

sed -e 's/^steps = .*/steps = 100000000/' -e 's/^at_end = .*/every = 40\nkeep = 1/' -i run.toml
survives() {  # survives RULE TEXT
  rules "$1"
  await err.txt "$(wc -l <err.txt)" "saving step [0-9]* failed, training continues: .*$2"
  local kept
  kept=$(ls out/checkpoints)
  [[ $kept =~ ^step-[0-9]+$ ]] || fail "$1: what is there is $kept"
  "$TRIREME" verify "out/checkpoints/$kept" >verified.txt || fail "$1: the checkpoint before is damaged"
  rm rules
  a_save_works
}

start
a_save_works
survives 'write 1 8 ENOSPC /shards/' '\[rank 1 on .*\] .*dp-00001-tp-00.h5: cannot write: No space left on device; free space'
survives 'write 0 1 ENOSPC /shards/' ".*dp-00000-tp-00.h5: cannot write: No space left on device; free space"
survives 'write 0 1 ENOSPC /index.h5' ".*index.h5: cannot write: No space left on device; free space"
survives 'truncate 0 1 EDQUOT /index.h5' ".*index.h5: cannot extend to [0-9]* bytes: Disk quota exceeded; free space"
survives 'write 0 1 EDQUOT /COMMIT' 'COMMIT: cannot write: Disk quota exceeded; free space'
survives 'write 1 8 EFBIG /shards/' '\[rank 1 on .*\] .*dp-00001-tp-00.h5: cannot write: File too large'
survives 'allocate 1 1 EDQUOT /shards/' '\[rank 1 on .*\] .*dp-00001-tp-00.h5: cannot set [0-9]* bytes aside: Disk quota exceeded'
survives 'fsync 1 1 EIO /shards/' '\[rank 1 on .*\] .*dp-00001-tp-00.h5: cannot flush to disk: Input/output error'
survives 'fsync 0 1 EDQUOT .partial/shards' 'cannot flush .*to disk: Disk quota exceeded; free space'
survives 'mkdir 0 1 EACCES .partial' '.partial: cannot be created: Permission denied'
survives 'mkdir 0 1 EDQUOT .partial' '.partial: cannot be created: Disk quota exceeded'
survives 'create 1 1 EACCES /shards/' '\[rank 1 on .*\] .*dp-00001-tp-00.h5: cannot create: Permission denied'
survives 'open 1 1 EMFILE .partial/shards/' '\[rank 1 on .*\] .*: cannot open: Too many open files'
survives 'rename 0 1 EACCES .partial' 'cannot be renamed to .*: Permission denied'
# HDF5 never meets such a disk: after two writes that failed in a row it crashed at the end of a run that had gone well.
rules 'write 0 3-4 ENOSPC /index.h5'
a_save_works
rules 'write 0 5-6 ENOSPC /shards/'
a_save_works
# Nor the memory file system: it may be full, or its quota.
rules 'write any 1 ENOSPC /dev/shm/'
a_save_works
rules 'flock any 1 ENOLCK .h5'  # NFS without a lock daemon: the job's own lock is another matter
a_save_works
rules 'flock any 1 EOPNOTSUPP .h5'
a_save_works
rm rules
stops() {  # at SIGUSR1, with a whole checkpoint and nothing else
  local left
  kill -USR1 $pid
  status=0
  wait $pid || status=$?
  ((status == 75)) || fail "after all that: exit code $status"
  left=$(ls -A out/checkpoints)
  [[ $left =~ ^.job.lock.step-[0-9]+$ ]] || fail "left: $left"
  "$TRIREME" verify out/checkpoints/step-* >verified.txt || fail 'the last one is damaged'
}
stops

# Ranks that share a file: no rank waits for one that fails to open, write or lay out the file.
start --set checkpoint.ranks_per_file=2
a_save_works
survives 'open 1 1 EMFILE .partial/shards/' '\[rank 1 on .*\] .*dp-00000-tp-00.h5: cannot open: Too many open files'
survives 'create 0 1 EMFILE .partial/shards/' '.*dp-00000-tp-00.h5: cannot .*Too many open files'
survives 'write 0 1 ENOSPC /shards/' ".*dp-00000-tp-00.h5: cannot write: No space left on device; free space"
survives 'write 1 1 ENOSPC /shards/' '\[rank 1 on .*\] .*dp-00000-tp-00.h5: cannot write: No space left on device; free space'
survives 'allocate 1 1 EDQUOT /shards/' '\[rank 1 on .*\] .*dp-00000-tp-00.h5: cannot set [0-9]* bytes aside: Disk quota exceeded'
stops

# No more threads: saves, evaluations and the watch over both do without.
start --set train.eval_every=40 --set train.eval_steps=1 --set data.validation=tokens.bin
a_save_works
rules 'thread any 1 EAGAIN thread'
await err.txt 0 'no thread can be started to watch work on files'
await err.txt 0 'no thread can be started to read tokens ahead'
a_save_works
rm rules
stops

# Unreadable validation files end no training: the failure is reported, and the next evaluation tries again. They stay open:
# removed during the run, they are evaluated to its end.
cp tokens.bin valid.bin
start --set train.eval_every=40 --set train.eval_steps=2 --set data.validation=valid.bin
a_save_works
await out/metrics.jsonl 0 '"eval_loss":[0-9]'
for rule in 'read 1 1 EIO' 'read 0 2 ESTALE'; do
  rules "$rule /valid.bin"
  await err.txt "$(wc -l <err.txt)" "error the evaluation of step [0-9]* failed, training continues: .*token file valid.bin.*"
  a_save_works
done
rm rules
rm valid.bin
await out/metrics.jsonl "$(wc -l <out/metrics.jsonl)" '"eval_loss":[0-9]'
await out/metrics.jsonl "$(wc -l <out/metrics.jsonl)" '"eval_loss":[0-9]'
stops
# At the start they are required.
# shellcheck disable=SC2086  # several options in one variable
launch $MPIEXEC $MPIEXEC_FLAGS -n 2 $injected "$TRIREME" train run.toml --set train.eval_every=40 --set data.validation=gone.bin --set run.output=none
expect_end 3 'gone.bin'

# Failures of an export after a checkpoint end no training: a user's file at its path, the tokenizer's file gone.
"$TRIREME" export out/checkpoints/step-* -o weights >exported.txt
cp weights/tokenizer.json .
exporting=(--set run.export=every_checkpoint --set data.tokenizer=hf:tokenizer.json --set data.check_tokenizer=false)
rm -rf out
mkdir -p out/export-step-00000002 out/.export-step-00000001.partial/of-a-killed-job
touch out/export-step-00000002/notes
job 2 train run.toml "${exporting[@]}" --set train.steps=4 --set checkpoint.every=2
expect_done
grep -q 'error the export of step 2 failed, training continues: ' err.txt || fail 'the export that failed is not reported'
[[ ! -e out/.export-step-00000001.partial ]] || fail 'what a killed job has left of an export stays'
[[ -e out/export-step-00000002/notes && -e out/export-step-00000004/tokenizer.json ]] || fail 'the exports'
start "${exporting[@]}"
await out.txt 0 '^exported out/export-step-'
rm tokenizer.json
a_save_works
await out.txt "$(wc -l <out.txt)" '^exported out/export-step-'
await out.txt "$(wc -l <out.txt)" '^exported out/export-step-'
stops

# A failed last save is not repeated: the run reports it and leaves no partial files.
for ranks_per_file in 1 2; do
  rm -rf out
  rules 'write 0 1 EDQUOT /COMMIT'
  # shellcheck disable=SC2086  # several options in one variable
  launch $MPIEXEC $MPIEXEC_FLAGS -n 2 $injected "$TRIREME" train run.toml --set train.steps=2 --set checkpoint.at_end=true \
    --set checkpoint.ranks_per_file=$ranks_per_file
  expect_end 8 'the checkpoint of step 2 was not saved' 'COMMIT: cannot write: Disk quota exceeded'
  [[ $(ls -A out/checkpoints) == .job.lock ]] || fail "left: $(ls -A out/checkpoints)"
done
# The rename was made, but may not be on the disk: it is undone.
rm -rf out
rules 'fsync 0 2 EIO /out/checkpoints$'
# shellcheck disable=SC2086  # several options in one variable
launch $MPIEXEC $MPIEXEC_FLAGS -n 2 $injected "$TRIREME" train run.toml --set train.steps=2 --set checkpoint.at_end=true
expect_end 8 'the checkpoint of step 2 was not saved' 'cannot flush the directory to disk: Input/output error'
[[ $(ls -A out/checkpoints) == .job.lock ]] || fail "left: $(ls -A out/checkpoints)"
# Signals interrupt calls of network file systems: they are made again.
rules 'truncate 0 1-2 EINTR .lock' 'write 0 1-2 EINTR .lock' 'fsync any 1-2 EINTR /out' 'write any 1-2 EINTR .partial'
# shellcheck disable=SC2086  # several options in one variable
launch $MPIEXEC $MPIEXEC_FLAGS -n 2 $injected "$TRIREME" train run.toml --set train.steps=2 --set checkpoint.at_end=true
expect_done
[[ $(ls -A out/checkpoints) == step-00000002 || $(ls -A out/checkpoints) == $'.job.lock\nstep-00000002' ]] || fail "left: $(ls -A out/checkpoints)"

# metrics.jsonl cannot be read at a resume: a read error is not its end, and the file is unchanged.
rm -f rules
mv out/metrics.jsonl complete.jsonl
for rule in 'read 0 1-9 EIO' 'read 0 1-9 ESTALE' 'open 0 1-9 EMFILE'; do
  cp complete.jsonl out/metrics.jsonl
  rules "$rule /metrics.jsonl"
  # shellcheck disable=SC2086  # several options in one variable
  launch $MPIEXEC $MPIEXEC_FLAGS -n 2 $injected "$TRIREME" train run.toml --set train.steps=3
  expect_end 8 'out/metrics.jsonl: cannot' "${rule##* }"
  cmp complete.jsonl out/metrics.jsonl || fail "$rule: the history was changed"
done
rules 'read 0 1-2 EIO /metrics.jsonl'  # one that passes
# shellcheck disable=SC2086  # several options in one variable
launch $MPIEXEC $MPIEXEC_FLAGS -n 2 $injected "$TRIREME" train run.toml --set train.steps=3
expect_done
[[ $(head -n 2 out/metrics.jsonl) == $(<complete.jsonl) ]] || fail 'the steps before the resume'
((3 == $(wc -l <out/metrics.jsonl))) || fail 'the steps after a resume'

# A file system that cannot flush the lock file.
rm -rf out
rules 'fsync 0 1 EINVAL .job.lock'
# shellcheck disable=SC2086  # several words
launch $injected "$TRIREME" train run.toml --set train.steps=1
expect_done

# Before the first step: found, and nothing is computed.
refused() {  # refused RULE TEXT...
  local rule=$1
  shift
  rm -rf out elsewhere
  rules "$rule"
  # shellcheck disable=SC2086  # several words
  launch $injected "$TRIREME" train run.toml --set checkpoint.directory=elsewhere/checkpoints
  expect_end 8 "$@"
  [[ ! -s out/metrics.jsonl ]] || fail "$rule: it computed before it looked"
}
refused 'mkdir 0 1 EACCES /out' 'run.output out: cannot be created: Permission denied'
refused 'mkdir 0 1 EDQUOT /elsewhere' 'checkpoint.directory elsewhere/checkpoints: cannot be created: Disk quota exceeded'
refused 'create 0 1 EACCES /out/.job.lock' 'out/.job.lock: cannot be created: Permission denied'
refused 'create 0 1 EACCES /elsewhere/checkpoints/.write-probe' 'elsewhere/checkpoints/.write-probe: cannot create: Permission denied'
refused 'fsync 0 1 EDQUOT /elsewhere/checkpoints/.write-probe' 'elsewhere/checkpoints/.write-probe: cannot flush to disk: Disk quota exceeded'
refused 'create 0 1 EACCES /elsewhere/checkpoints/.job.lock' 'elsewhere/checkpoints/.job.lock: cannot be created: Permission denied'
refused 'write 0 1 ENOSPC /out/.run.toml' 'out/.run.toml' 'No space left on device'
