# SPDX-License-Identifier: Apache-2.0
#
# The program is killed at every point of a save and resumes, bit for bit; verify, inspect, export; a signal; a full disk.
# timeout: 900
# Fault, saves: a rank is killed in a save, also an asynchronous one -> the restart resumes from the save before, bit
#   for bit
# Fault, saves: all ranks are killed in the rename or the removal -> the old or the new checkpoint is complete
# Fault, saves: `ulimit -f` in a save -> exit code 8 with the limit

source "$TRIREME_SOURCE/tests/support/processes.sh"

work=$(mktemp -d)
source "$TRIREME_SOURCE/tests/support/skips.sh"
cd "$work"
export OMP_NUM_THREADS=1
export OMPI_MCA_odls_base_sigkill_timeout=0  # or mpirun waits a second for ranks that it ends: dozens of times here
fail() { printf 'FAILED: %s\n' "$*"; cat log 2>/dev/null; exit 1; }

"$TRIREME" tokenize --tokenizer bytes -o tokens.bin "$TRIREME_SOURCE/LICENSE" >log 2>&1
cat >run.toml <<RUN
[model]
vocab_size = 257
hidden_size = 20
intermediate_size = 30
layers = 2
heads = 2
[data]
train = "tokens.bin"
seq_len = 16
[batch]
global = 8
micro = 2
[precision]
compute = "fp32"
[train]
steps = 4
[checkpoint]
every = 1
RUN

train() {  # train NAME [--set ...]: exit code in $status
  local name=$1
  shift
  status=0
  # shellcheck disable=SC2086  # several options in one variable
  $MPIEXEC $MPIEXEC_FLAGS -n 2 "$TRIREME" train run.toml --set run.output="$name" "$@" >log 2>&1 || status=$?
}
losses() { sed -E 's/.*"loss":([^,]*),"grad_norm":([^,]*),.*/\1 \2/' "$1/metrics.jsonl"; }
same_end() {  # same_end NAME: the same losses and the same shard files as the unbroken run
  cmp <(losses unbroken) <(losses "$1") || fail "$1: other losses"
  for file in unbroken/checkpoints/step-00000004/shards/*; do
    cmp "$file" "$1/checkpoints/step-00000004/shards/${file##*/}" || fail "$1: other values"
  done
}

train unbroken
((status == 0)) || fail "the unbroken run ended with $status"

for point in stage write close manifest rename readback gc; do
  rank=0
  [[ $point == write ]] && rank=1
  TRIREME_FAULT=ckpt.$point:kill:$rank:2 train "killed-$point"
  ((status != 0)) || fail "ckpt.$point: the kill was not seen"
  train "killed-$point"
  ((status == 0)) || fail "ckpt.$point: the restart ended with $status"
  grep -q 'resuming from' log || fail "ckpt.$point: it began anew"
  same_end "killed-$point"
  [[ -z $(find "killed-$point/checkpoints" -name '.step-*') ]] || fail "ckpt.$point: leftovers"
done

# After the death of one rank in a save the job ends long before comm.timeout_seconds (600). All of them killed while the first one renames,
# or removes: the old one or the new one is complete.
in_background() {  # in_background NAME FAULT: $pid
  # shellcheck disable=SC2086  # several options in one variable
  TRIREME_FAULT=$2 $MPIEXEC $MPIEXEC_FLAGS -n 2 "$TRIREME" train run.toml --set run.output="$1" >log 2>&1 &
  pid=$!
}
for point in write manifest rename; do
  in_background "ends-$point" "ckpt.$point:stop:0:2"
  await_stopped $pid
  begin=$SECONDS
  kill -KILL "$stopped"
  wait $pid && fail "ckpt.$point: a killed rank went unseen"
  ((SECONDS - begin <= 120)) || fail "ckpt.$point: it took $((SECONDS - begin)) s to end after a rank had died"
done
for point in rename gc; do
  in_background "all-$point" "ckpt.$point:stop:0:2"
  await_stopped $pid
  mapfile -t ranks < <(ranks_of $pid)
  kill -KILL "${ranks[@]}"
  wait $pid && fail "ckpt.$point: the end of all ranks went unseen"
  await_end_of "${ranks[@]}"
  # shellcheck disable=SC2010  # names of ours
  newest=$(ls "all-$point/checkpoints" | grep '^step-' | tail -n 1)
  [[ $newest == $([[ $point == rename ]] && echo step-00000002 || echo step-00000003) ]] || fail "ckpt.$point: the newest is $newest"
  "$TRIREME" verify "all-$point/checkpoints/$newest" >log 2>&1 || fail "ckpt.$point: $newest is damaged"
  train "all-$point"
  ((status == 0)) || fail "ckpt.$point: the restart ended with $status"
  same_end "all-$point"
done

# A limit on the size of files, set on running ranks: reported, earlier files stay, the training continues, and without it a later
# save works.
await() {  # await TEXT
  local i
  for ((i = 0; i < 2400; ++i)); do
    ! grep -q "$1" log || return 0
    kill -0 $pid 2>/dev/null || fail "the job ended before: $1"
    sleep 0.05
  done
  fail "never printed: $1"
}
for ranks_per_file in 1 2; do
  : >log
  # shellcheck disable=SC2086  # several options in one variable
  setsid $MPIEXEC $MPIEXEC_FLAGS -n 2 "$TRIREME" train run.toml --set run.output=limited --set train.steps=100000000 \
    --set checkpoint.every=100 --set metrics.every=100000000 --set checkpoint.ranks_per_file=$ranks_per_file >>log 2>&1 &
  pid=$!
  await '^saved limited/checkpoints/step-00000100'
  for rank in $(ranks_of $pid); do prlimit --pid "$rank" --fsize=40960:unlimited; done
  await 'failed, training continues: .* may have 40960 at most (ulimit -f); raise the limit'
  kept=$(ls limited/checkpoints | tail -n 1)
  "$TRIREME" verify "limited/checkpoints/$kept" >verified || fail 'ulimit -f: the old checkpoint is damaged'
  for rank in $(ranks_of $pid); do prlimit --pid "$rank" --fsize=unlimited:unlimited; done
  : >log
  await '^saved limited/checkpoints/step-'
  kill -USR1 "$(ranks_of $pid | tail -n 1)"
  status=0
  wait $pid || status=$?
  ((status == 75)) || fail "ulimit -f: exit code $status"
  rm -r limited
done

# The same with one file for both ranks, with synchronous and asynchronous saves.
for async in false true; do
  for at in stage:1 write:0 write:1 close:0 sync:1 manifest:0 rename:0 readback:1 gc:0; do
    rm -rf shared
    TRIREME_FAULT=ckpt.${at%:*}:kill:${at#*:}:2 train shared --set checkpoint.ranks_per_file=2 --set checkpoint.async=$async
    ((status != 0)) || fail "shared file, ckpt.$at: the kill was not seen"
    train shared --set checkpoint.ranks_per_file=2 --set checkpoint.async=$async
    ((status == 0)) || fail "shared file, ckpt.$at: the restart ended with $status"
    grep -q 'resuming from' log || fail "shared file, ckpt.$at: it began anew"
    cmp <(losses unbroken) <(losses shared) || fail "shared file, ckpt.$at: other losses"
    [[ $(ls -A shared/checkpoints | tr '\n' ' ') == '.job.lock step-00000003 step-00000004 ' ]] ||
      fail "shared file, ckpt.$at: left are $(ls -A shared/checkpoints)"
    [[ $(ls shared/checkpoints/step-00000004/shards) == dp-00000-tp-00.h5 ]] || fail "shared file, ckpt.$at: other files"
    "$TRIREME" verify shared/checkpoints/step-00000004 >log 2>&1 || fail "shared file, ckpt.$at: damaged"
  done
done
"$TRIREME" inspect shared/checkpoints/step-00000004 >log
grep -q 'in 1 file, one for 2 dp ranks' log || fail 'inspect says nothing of the shared file'
# It resumes with files of one rank each, to the same end.
rm -r shared/checkpoints/step-00000004
train shared
((status == 0)) || fail "from a shared file: $status"
same_end shared

checkpoint=unbroken/checkpoints/step-00000004
"$TRIREME" verify $checkpoint >log 2>&1 || fail 'verify refuses a sound checkpoint'
"$TRIREME" inspect $checkpoint >log 2>&1 || fail 'inspect'
grep -q 'model.layers.1.mlp.down_proj.weight' log || fail 'inspect shows no tensors'
"$TRIREME" export $checkpoint -o hf --dtype fp32 >log 2>&1 || fail 'export'
"$TRIREME" generate hf --tokenizer bytes --prompt 'The ' --tokens 3 >log 2>&1 || fail 'generate from the export'

# Every copy damaged: named, never begun anew.
cp -r unbroken damaged
for file in damaged/checkpoints/step-*/shards/dp-00001-tp-00.h5; do truncate -s -1 "$file"; done
train damaged
((status == 4)) || fail "damaged checkpoints: exit code $status"
grep -q 'dp-00001-tp-00.h5: has' log || fail 'the damaged file is not named'
status=0
"$TRIREME" verify damaged/checkpoints/step-00000004 >log 2>&1 || status=$?
((status == 4)) || fail "verify: exit code $status"

# The launcher forwards SIGUSR1 and gives back 75.
sed -e 's/^steps = .*/steps = 100000000/' -e 's/^every = .*/every = 0/' -i run.toml
# shellcheck disable=SC2086  # several options in one variable
$MPIEXEC $MPIEXEC_FLAGS -n 2 "$TRIREME" train run.toml --set run.output=signalled >log 2>&1 &
until [[ -s signalled/metrics.jsonl ]]; do
  sleep 0.05
  kill -0 $! || fail 'the run ended by itself'
done
kill -USR1 $!
status=0
wait $! || status=$?
((status == 75)) || fail "SIGUSR1: exit code $status"
saved=$(ls signalled/checkpoints)
[[ $saved == step-* ]] || fail 'SIGUSR1: nothing saved'
[[ $(wc -l <signalled/metrics.jsonl) == $((10#${saved#step-})) ]] || fail 'SIGUSR1: another step was saved than reported'

mkdir full
if mount -t tmpfs -o size=256k none full 2>/dev/null; then
  sed -e 's/^steps = .*/steps = 4/' -e 's/^every = .*/every = 1/' -e 's/^hidden_size = .*/hidden_size = 200/' -i run.toml
  status=0
  "$TRIREME" train run.toml --set run.output=small --set checkpoint.directory=full/checkpoints >log 2>&1 || status=$?
  ((status == 8)) || fail "full disk: exit code $status"
  grep -q 'are free; free space' log || fail 'full disk: no clear message'
else
  not_tried 'a full disk: a tmpfs cannot be mounted'
fi
