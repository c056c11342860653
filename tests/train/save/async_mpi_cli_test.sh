# SPDX-License-Identifier: Apache-2.0
#
# Asynchronous saves: killed, too slow, without memory, and on a full disk.
# timeout: 900
# Fault, saves: disk full in a save -> error with bytes needed and free; training continues; exit code 8 in the last
#   save
# Fault, saves: no save of a run succeeds -> exit code 8 at the third failure in a row
# Fault, saves: no memory (`ulimit -v`) or no thread for an asynchronous save -> warning; saves are synchronous
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

# Only what a run computes counts: losses of every step, and its last checkpoint's files.
same_end() {  # same_end NAME STEP
  cmp <(losses unbroken) <(losses "$1") || fail "$1: other losses"
  local file
  for file in unbroken/checkpoints/step-"$2"/shards/*; do
    cmp "$file" "$1/checkpoints/step-$2/shards/${file##*/}" || fail "$1: other values"
  done
}
losses() { sed -E 's/.*"loss":([^,]*),"grad_norm":([^,]*),.*/\1 \2/' "$1/metrics.jsonl"; }

sed -e 's/^steps = .*/steps = 40/' -e 's/^at_end = .*/every = 10/' -i run.toml
job 2 train run.toml --set run.output=unbroken --set checkpoint.async=false
expect_done
grep -q '^saved unbroken/checkpoints/step-00000010 (.*, .* s)$' out.txt || fail 'a save that waits says so'

# Asynchronous: the same files, and the training's steps continue in the meantime.
job 2 train run.toml --set run.output=beside
expect_done
same_end beside 00000040
grep -q '^saved beside/checkpoints/step-00000010 (.* s in the background, training stalled .* s)$' out.txt || fail 'no word of it'

# Killed in the background, while later steps run: the one before is complete, the end is the same.
for point in stage write sync manifest rename gc; do
  rank=0
  [[ $point != write ]] || rank=1
  TRIREME_FAULT=ckpt.$point:kill:$rank:29 job 2 train run.toml --set run.output=killed
  ((status != 0 && status != 7)) || fail "ckpt.$point: exit code $status"
  ! grep -q 'Hang:' err.txt || fail "ckpt.$point: a watchdog ended it"
  job 2 train run.toml --set run.output=killed
  expect_done
  grep -q 'resuming from killed/checkpoints/step-000000[23]0' err.txt || fail "ckpt.$point: resumed from elsewhere"
  same_end killed 00000040
  [[ -z $(find killed/checkpoints -name '.step-*') ]] || fail "ckpt.$point: leftovers"
  rm -r killed
done

# One that fails is an error at the next step, and not the end; the next one is written. The last one decides.
TRIREME_FAULT=ckpt.sync:throw:1:19 job 2 train run.toml --set run.output=failing
expect_done
(($(grep -c 'saving step 20 failed, training continues' err.txt) == 1)) || fail 'a failed save was silent'
same_end failing 00000040
[[ ! -e failing/checkpoints/step-00000020 && -e failing/checkpoints/step-00000030 ]] || fail 'what was kept'
TRIREME_FAULT=ckpt.sync:throw:1:39 job 2 train run.toml --set run.output=failing-last
expect_end 8 'the checkpoint of step 40 was not saved' 'ckpt.sync'
TRIREME_FAULT=ckpt.sync:throw:1:39 job 2 train run.toml --set run.output=failing-last --set train.steps=45 \
  --set checkpoint.at_end=false --set run.overwrite=true --set checkpoint.resume=none
expect_end 8 'the checkpoint of step 40 was not saved' 'ckpt.sync'

# A run whose saves all fail ends with the third, and not after its last step; one that has saved continues.
TRIREME_FAULT=ckpt.sync:throw:1 job 2 train run.toml --set run.output=never --set checkpoint.every=5
expect_end 8 '3 saves in a row have failed, and none of this run has succeeded' 'ckpt.sync'
! grep -q '"step":2[1-9]' never/metrics.jsonl || fail 'it went on'
job 2 train run.toml --set run.output=never --set checkpoint.every=5 --set train.steps=5
expect_done
TRIREME_FAULT=ckpt.sync:throw:1 job 2 train run.toml --set run.output=never --set checkpoint.every=5 --set train.steps=30
expect_end 8 'the checkpoint of step 30 was not saved'

# Slower than the interval of saves: the training waits, and reports it.
job 2 train run.toml --set run.output=often --set checkpoint.every=1 --set train.steps=8
expect_done
[[ $(ls often/checkpoints) == $'step-00000007\nstep-00000008' ]] || fail "left: $(ls often/checkpoints)"

# No memory for the copy: the training waits for its saves instead.
TRIREME_FAULT=ckpt.memory:nan:1 job 2 train run.toml --set run.output=no-memory
expect_done
grep -q 'checkpoint.async: the training waits for its saves: \[rank 1 on .*\] a copy of what a rank saves takes' err.txt ||
  fail 'nothing is said of the memory'
same_end no-memory 00000040

# The same by a limit on the address space, with a model whose copy is large: what a run that waits for its saves takes (until
# its last file is closed: a fault stops it there), and half a copy. With one arena for malloc: threads that meet there make others,
# and take 128 MiB of addresses for a moment.
large() {  # large NAME [--set ...]: two saves of 29 million parameters
  job 2 train run.toml --set run.output="$1" --set train.steps=2 --set checkpoint.every=1 --set model.hidden_size=768 \
    --set model.intermediate_size=2048 --set model.layers=4 --set batch.global=4 "${@:2}"
}
cat >peak.sh <<'SH'
TRIREME_FAULT='ckpt.close:stop:*:1' "$@" &
rank=$!
while kill -0 $rank 2>/dev/null; do
  if [[ $(ps -o state= -p $rank) == T ]]; then
    sed -n 's/^VmPeak:[^0-9]*\([0-9]*\) kB/\1/p' /proc/$rank/status >>peaks
    kill -CONT $rank
  fi
  sleep 0.02
done
wait $rank
SH
program=$TRIREME
printf '#!/bin/bash\nexec bash %q/peak.sh %q "$@"\n' "$work" "$program" >measured.sh
# shellcheck disable=SC2016  # read when it runs
printf '#!/bin/bash\nulimit -v $(cat %q/limit)\nexec %q "$@"\n' "$work" "$program" >limited.sh
chmod +x measured.sh limited.sh
export MALLOC_ARENA_MAX=1
TRIREME=$work/measured.sh large waits --set checkpoint.async=false
expect_done
(($(wc -l <peaks) == 2)) || fail "not each rank's memory was seen: $(cat peaks)"
copy=$((12 * 29 * 1000 / 2))  # KB of a rank
echo $(($(sort -n peaks | tail -n 1) + copy / 2)) >limit
TRIREME=$work/limited.sh large beside-limited
expect_done
grep -q 'checkpoint.async: the training waits for its saves: .*a copy of what a rank saves takes' err.txt || fail 'a limit on memory is not said'
cmp <(losses waits) <(losses beside-limited) || fail 'a limit on memory: other losses'
"$TRIREME" verify beside-limited/checkpoints/step-00000001 >/dev/null || fail 'a limit on memory: damaged'
rm -r waits beside-limited
unset MALLOC_ARENA_MAX

# A full disk: an error with the bytes needed and free; the old checkpoint stays; later, with space, the next is written.
mkdir full
if mount -t tmpfs -o size=4096k none full 2>/dev/null; then
  dd if=/dev/zero of=full/filler bs=1k count=2400 2>/dev/null
  # Only the first check of the space fails; later there is space, and a checkpoint is written.
  # shellcheck disable=SC2086  # several options in one variable
  $MPIEXEC $MPIEXEC_FLAGS -n 2 "$TRIREME" train run.toml --set run.output=disk --set checkpoint.keep=1 \
    --set checkpoint.directory=full/checkpoints --set train.steps=10000000 --set checkpoint.every=50 >out.txt 2>err.txt &
  for ((i = 0; i < 2400; ++i)); do
    grep -q 'saving step 100 failed' err.txt && break
    kill -0 $! || fail 'the full disk ended the run'
    sleep 0.05
  done
  grep -q 'saving step 100 failed, training continues: .* needs .* bytes.* are free; free space' err.txt ||
    fail 'a full disk has no clear message'
  [[ $(ls full/checkpoints) == step-00000050 ]] || fail "a full disk: left are $(ls -A full/checkpoints)"
  "$TRIREME" verify full/checkpoints/step-00000050 >/dev/null || fail 'a full disk: the old checkpoint is damaged'
  rm full/filler
  for ((i = 0; i < 2400; ++i)); do
    [[ $(ls full/checkpoints) != step-00000050 ]] && break
    sleep 0.05
  done
  kill -USR1 $!
  status=0
  wait $! || status=$?
  ((status == 75)) || fail "after the full disk: exit code $status"
  "$TRIREME" verify full/checkpoints/step-* >/dev/null || fail 'after the full disk: the checkpoint is damaged'
else
  not_tried 'a full disk: a tmpfs cannot be mounted'
fi
