# SPDX-License-Identifier: Apache-2.0
#
# Ranks that throw, die, stop or compute nonsense: the job ends within seconds with the reason, or all ranks continue alike.
# timeout: 900
# Fault, saves: saves during a streak of skipped steps -> outside of `checkpoint.keep`; no earlier checkpoint is
#   removed
# Fault, hangs: a rank is stopped, also in a save -> exit code 7 within the deadline, with rank, node, operation,
#   block
# Fault, hangs: evaluation, load, save, export longer than the deadline -> allowed while batches end or files make
#   progress; a flush ten times as long
# Fault, hangs: a slow rank, a slow disk -> warning with rank and node
# Fault, hangs: a kill while a shared-memory segment has a name -> the next start on the node removes it
# Fault, numerics: a gradient or loss of one rank is not finite -> skipped on all ranks; too many in a row: exit code
#   6
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

fault() { export TRIREME_FAULT=$1; }
losses() { json_check "$1" out/metrics.jsonl; rm -r out; }

fault step.begin:throw:1:3
for lanes in false true; do
  job 4 train run.toml --set comm.lane_threads=$lanes
  expect_end 1 "[rank 1 " "fault injected at step.begin"
  expect_soon
  grep -q "TRIREME_FAULT is set" err.txt || fail "no warning of the fault"
  rm -r out
done

fault step.begin:kill:2:3
job 4 train run.toml
((status != 0 && status != 7)) || fail "a killed rank: exit code $status"
expect_soon
losses 'assert [r["step"] for r in rows] == list(range(1, len(rows) + 1)) and len(rows) >= 2, "whole lines"'

# Killed while a segment of shared memory has a name: the next start removes it (any start: perhaps another test's already).
fault shm.create:kill:0
job 2 train run.toml
((status != 0)) || fail 'a killed rank went unseen'
# shellcheck disable=SC2044  # names of ours
left=$(for segment in $(find /dev/shm -maxdepth 1 -name 'trireme-*' -newer run.toml); do
  pid=${segment#/dev/shm/trireme-}
  [[ -d /proc/${pid%%-*} ]] || echo "$segment"
done)
rm -rf out
unset TRIREME_FAULT
job 2 train run.toml
expect_done
for segment in $left; do [[ ! -e $segment ]] || fail "$segment is still there"; done
rm -r out

# A stopped rank is named with the operation that waits for it: over shared memory and MPI, with and without lane threads.
# With them the other ranks wait in the compute lane, whose watchdog must not report first. 8 s are more than a busy machine keeps
# a rank from its step, and half of it from its report. Two jobs wait at the same time.
fault step.begin:stop:1:2
for lanes in false true; do
  for backend in auto mpi; do
    counted="env LD_PRELOAD=$COUNTED_CALLS COUNTED_ROOT=$work COUNTS_LOG=$work/calls-$backend.txt"
    beside $backend 4 train run.toml --set comm.timeout_seconds=8 --set comm.lane_threads=$lanes --set comm.backend=$backend
    counted=
  done
  for backend in auto mpi; do
    ended $backend
    # The operation, for which block and step, who did not write a report, and its node.
    expect_end 7 "Hang: " " on shard/" "for \"" ", step 3\"" "comm.timeout_seconds" "hang-rank" \
      "Wrote nothing: rank 1 on $(hostname)."
    expect_soon
    [[ $backend == mpi ]] || expect_end 7 "waits for rank 1 on $(hostname) after"
    json_check 'assert rows[0]' out/hang-rank"$(sed -n 's/^\[rank \([0-9]*\) .*Hang: .*/\1/p' err.txt)".json
    for rank in 0 2 3; do
      json_check 'assert any(o["finished_seconds_ago"] is None and o["task"] for o in rows[0]["operations"]), rows[0]' out/hang-rank$rank.json
    done
    # One rank lists the reports of all, and no rank looks for a single one: see docs/scale.md.
    reports=$(sed '0,/^create .*hang-rank/d' calls-$backend.txt)
    (($(grep -c "^list $backend\$" <<<"$reports") == 1)) || fail "the reports of a hang are listed by several ranks: $reports"
    # A rank that writes its own looks at that name twice.
    reports=$(grep -E '^(look|open) .*hang-rank' calls-$backend.txt || true)
    (($(grep -c . <<<"$reports") <= 2 * 3)) || fail "ranks look for each report of a hang: $reports"
    rm calls-$backend.txt
    rm -r out
  done
done

# Rank 0, and one that stops in a save that the training waits for.
fault step.begin:stop:0:2
beside first 4 train run.toml --set comm.timeout_seconds=8
fault ckpt.write:stop:1
beside in-save 2 train run.toml --set checkpoint.every=2 --set checkpoint.async=false --set comm.timeout_seconds=8
ended first
expect_end 7 "Hang: " " on shard/"
ended in-save
expect_end 7 "Hang: " "waited 8 s for the others to" "(saving a checkpoint, step 2)" "comm.timeout_seconds" \
  "Wrote nothing: rank 1 on $(hostname)."

# One that stops before the run file is agreed upon.
fault train.begin:stop:0
beside at-start 4 train run.toml --set comm.timeout_seconds=8

# A slow rank fails nothing and is named; every rank's times are recorded. slowly POINT RANK TIMES: 50 ms each, enough to be
# visible when other work on this machine makes steps long.
slowly() {
  local faults
  faults=$(printf "$1:slow:$2,%.0s" $(seq "$3"))
  fault "${faults%,}"
}
slowly data.read 1 8
beside slow-data 4 train run.toml --set train.steps=66 --set data.prefetch_batches=1
slowly step.begin 2 4
for lanes in false true; do beside lanes-$lanes 4 train run.toml --set train.steps=79 --set comm.lane_threads=$lanes; done

ended at-start
expect_end 7 'Hang: the start has been in "reading the run file" for ' "comm.timeout_seconds"
expect_soon
expect_no_output

# An evaluation may take longer than the timeout, of which each of its batches has one.
slowly eval.batch 0 40
beside evaluation 2 train run.toml --set train.steps=2 --set train.eval_every=2 --set train.eval_steps=7 --set data.validation=tokens.bin \
  --set comm.timeout_seconds=10

for lanes in false true; do
  ended lanes-$lanes
  expect_done
  grep -q "warning rank 2 on $(hostname) is a straggler: its own part of a step takes " err.txt || fail "the slow rank is not named"
  json_check '
ranks = rows[0]["ranks"]
assert rows[0]["slowest"].startswith("rank 2 on "), rows[0]["slowest"]
assert [r["rank"] for r in ranks] == [0, 1, 2, 3] and all(r["steps"] == 14 for r in ranks), "those after the window"
assert ranks[2]["median_seconds"] >= 0.05
' out/step_times.json
done
ended slow-data
expect_done
grep -q "warning rank 1 on $(hostname) is a straggler" err.txt || fail "the rank with the slow disk is not named"
ended evaluation
expect_done
json_check 'assert [r["eval_seconds"] > 10 for r in rows if "eval_loss" in r] == [True]' out/metrics.jsonl
rm -r out

# Not a number on one rank: that step is skipped on all of them, nothing is updated, and it is counted.
fault grad.reduce:nan:1:3
job 4 train run.toml
expect_done
grep -q "warning step 4: .* not finite; the step is skipped" err.txt || fail "no warning"
grep -q "step=4 .*skipped=true" out.txt || fail "the line of step 4"
mv out poisoned
fault grad.reduce:nan:3:3
job 4 train run.toml --set comm.lane_threads=true
expect_done
json_check '
other = [json.loads(line) for line in open(files[1])]
assert [r["skipped"] for r in rows] == [False, False, False, True, False, False]
assert [r["skipped_steps"] for r in rows] == [0, 0, 0, 1, 1, 1]
assert rows[3]["grad_norm"] is None and rows[3]["tokens"] == 4 * 16 * 32
assert all(math.isfinite(r["loss"]) for r in rows)
assert [r["loss"] for r in rows] == [r["loss"] for r in other], "whichever rank it was"
' poisoned/metrics.jsonl out/metrics.jsonl
rm -r out

fault grad.reduce:nan:1
job 4 train run.toml --set train.max_skipped_steps=3
expect_end 6 "3 steps in a row" "train.max_skipped_steps" "optimizer.lr"
losses 'assert [r["skipped_steps"] for r in rows] == [1, 2, 3]'
# Saves within them replace no good checkpoint, and the message names the last one.
rm -rf out
fault grad.reduce:nan:1:2,grad.reduce:nan:1:3,grad.reduce:nan:1:4
job 2 train run.toml --set train.max_skipped_steps=3 --set checkpoint.every=1 --set checkpoint.keep=1
expect_end 6 "3 steps in a row" "The last checkpoint before them is out/checkpoints/step-00000002:"
"$TRIREME" verify out/checkpoints/step-00000002 >verified.txt || fail "the checkpoint before the skipped steps is gone"
rm -r out

# A replica that drifts is found in the training, and at the latest before it would be saved.
fault replica.flip:nan:1:3
job 2 train run.toml --set mesh.replicate=2 --set train.replica_check_every=2
expect_end 6 'replicas have drifted apart' 'two replicas do not show which one is wrong'
losses 'assert [r["step"] for r in rows] == [1, 2, 3], rows'
fault replica.flip:nan:1:2
job 2 train run.toml --set mesh.replicate=2 --set metrics.every=100 --set checkpoint.every=3
expect_end 6 'replicas have drifted apart'
[[ -z $(ls out/checkpoints) ]] || fail "saved: $(ls -A out/checkpoints)"
rm -r out

# Ranks of two builds, or in one place, train nothing.
fault start.build:nan:1
job 2 train run.toml
expect_end 2 'The ranks do not agree on the build: rank 1 differs'
fault start.dp_rank:nan:1
job 2 train run.toml
expect_end 5 'rank 1 works as dp rank 0 instead of 1'
expect_no_output

# A signal while the ranks start stays pending until the run can handle it: it saves after its first step. Without checkpoints
# there is nothing to save.
fault train.begin:usr1:0
job 4 train run.toml --set checkpoint.at_end=true
((status == 75)) || fail "a signal at the start: exit code $status"
grep -q "stopped by a signal after step 1:" out.txt || fail "the run was not stopped after its first step"
rm -r out
job 4 train run.toml
((status != 0 && status != 75)) || fail "a signal without checkpoints: exit code $status"
rm -rf out

fault step.begin:explode
job 2 train run.toml
expect_end 2 "TRIREME_FAULT" "kill, stop, slow"
expect_no_output
