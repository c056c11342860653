# SPDX-License-Identifier: Apache-2.0
#
# kill -9 of one rank or of all, at 24 random moments around saves: every restart resumes from a complete checkpoint, never from
# an older one than was complete before, and the end equals that of an undisturbed run, bit for bit. Every other pair of restarts
# writes one file for both ranks.
# timeout: 900
# labels: slow
# Fault, saves: 24 kills at random moments (`TRIREME_TEST_KILLS`) -> no lost or partial checkpoint; the same end bit
#   for bit
source "$TRIREME_SOURCE/tests/cli/small_run.sh"
source "$TRIREME_SOURCE/tests/support/processes.sh"
export OMPI_MCA_odls_base_sigkill_timeout=0  # or mpirun waits a second for ranks that it ends: dozens of times here

readonly kills=${TRIREME_TEST_KILLS:-24} last_step=100000000
sed -e "s/^steps = .*/steps = $last_step/" -e 's/^at_end = .*/every = 3/' -e 's/^hidden_size = .*/hidden_size = 64/' -e 's/^global = .*/global = 64/' -i run.toml
losses() { sed -E 's/.*"loss":([^,]*),"grad_norm":([^,]*),.*/\1 \2/' "$1/metrics.jsonl"; }
# shellcheck disable=SC2010  # names of ours
newest() { ls out/checkpoints 2>/dev/null | grep '^step-' | tail -n 1 | sed 's/step-0*//' || true; }

before=0
one=0
for ((kill = 0; kill < kills; ++kill)); do
  : >out.txt  # or the last restart's lines would be taken for this one's
  # shellcheck disable=SC2086  # several options in one variable
  $MPIEXEC $MPIEXEC_FLAGS -n 2 "$TRIREME" train run.toml --set checkpoint.ranks_per_file=$((1 + kill / 2 % 2)) \
    >out.txt 2>err.txt &
  job=$!
  last="restart $kill"
  # A moment of the first second of its steps; saves follow each other closely, so most moments are in one.
  until grep -q '^step=' out.txt; do
    kill -0 $job 2>/dev/null || fail 'it ended before its first step'
    sleep 0.02
  done
  RANDOM=$((1000 + kill))
  sleep "0.$(printf %03d $((RANDOM % 700)))"
  mapfile -t ranks < <(ranks_of $job)
  if ((kill % 2 == 0)); then
    kill -KILL "${ranks[@]}" 2>/dev/null || true
  else
    kill -KILL "${ranks[$((RANDOM % ${#ranks[@]}))]}" 2>/dev/null || true
    one=$((one + 1))
  fi
  status=0
  wait $job 2>/dev/null || status=$?
  await_end_of "${ranks[@]}"  # one may be about to publish what it has written
  ((status != 0 && status != 75)) || fail "restart $kill: exit code $status after a kill"
  grep -q 'cannot be used' err.txt && fail "restart $kill: a damaged checkpoint was met"
  first=$(sed -n '/^step=/{s/^step=\([0-9]*\) .*/\1/p;q}' out.txt)
  ((first == before + 1)) || fail "restart $kill: its first step was $first, not $((before + 1))"
  now=$(newest)
  ((${now:-0} >= before)) || fail "restart $kill: the newest checkpoint was of step $before, now it is of step ${now:-0}"
  before=${now:-0}
  if ((before > 0)); then "$TRIREME" verify "out/checkpoints/$(printf 'step-%08d' "$before")" >/dev/null || fail "restart $kill: step $before is damaged"; fi
done
((before > 0)) || fail 'nothing was ever saved'

end=$((before + 5))
job 2 train run.toml --set train.steps=$end --set lr.end_step=$last_step --set checkpoint.at_end=true
expect_done
job 2 train run.toml --set train.steps=$end --set lr.end_step=$last_step --set run.output=unbroken \
  --set checkpoint.every=0 --set checkpoint.at_end=true
expect_done
cmp <(losses unbroken) <(losses out) || fail 'other losses than the unbroken run'
for file in unbroken/checkpoints/step-*/shards/*; do
  cmp "$file" "out/${file#*/}" || fail 'other values than the unbroken run'
done
echo "$kills kills, $one of them of one rank; reached step $before"
