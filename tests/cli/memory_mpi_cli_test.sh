# SPDX-License-Identifier: Apache-2.0
#
# Memory reports for users: the metrics and the end of the run name the op of each peak, and a run without enough memory prints
# the largest categories, the op, and settings to change.
# timeout: 300
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

job 2 train run.toml --set memory.activation_offload=true --set memory.activation_offload_min_bytes=0 \
  --set memory.offload=optimizer --set "metrics.trace_steps=[3]"
expect_done
grep -q "memory of one rank, highest" out.txt || fail "no table of peaks at the end"
grep -qE "^activations .* (forward|recompute|backward|reload) " out.txt || fail "the peak of activations names no op"
json_check '
for row in rows:
    ops = row["memory_peak_op"]["device"]
    assert ops["activations"].split()[0] in ("forward", "backward", "reload"), ops
    assert "total" in ops and "parameters.sharded" not in ops, ops
    host = row["memory_peak_bytes"]["host"]
    assert host["optimizer"] > 0 and host["activations"] > 0 and row["memory_peak_bytes"]["device"]["optimizer"] == 0
' out/metrics.jsonl
json_check '
events = [e for e in rows[0]["traceEvents"] if e["ph"] == "C"]
assert {e["name"] for e in events} == {"device memory", "host memory"}
on_host = [e["args"]["activations"] for e in events if e["name"] == "host memory"]
assert max(on_host) > 0 and on_host[-1] == 0, on_host
assert all(e["args"]["optimizer"] == 0 for e in events if e["name"] == "device memory")
' out/trace-rank0.json
rm -r out

# The copy for asynchronous saves: `plan` equals the metrics, to the digits of its tables. None if the only save is the last
# one.
copy() {  # copy [--set ...]: bytes that the plan has in host memory besides what the run holds all the time
  "$TRIREME" plan run.toml --ranks 3 --show memory --set checkpoint.at_end=true "$@" |
    sed -n 's/^in host memory: other  *\([0-9.]* [KMG]*i*B\) .*/\1/p'
}
for settings in "--set checkpoint.every=2" "--set checkpoint.every=2 --set checkpoint.ranks_per_file=2"; do
  # shellcheck disable=SC2086  # several options in one variable
  job 3 train run.toml --set batch.global=12 --set batch.micro=1 --set checkpoint.at_end=true $settings
  expect_done
  # shellcheck disable=SC2086
  planned=$(copy --set batch.global=12 --set batch.micro=1 $settings)
  [[ -n $planned ]] || fail "no copy in the plan of $settings"
  json_check "
def text(n):
    unit = 'B'
    for unit in ('B', 'KiB', 'MiB', 'GiB'):
        if n < 1024: break
        n /= 1024
    return n, unit
value, unit = text(max(r['memory_peak_bytes']['host']['other'] for r in rows))
said, said_unit = '$planned'.split()
assert unit == said_unit and abs(value - float(said)) <= 0.51 * 10 ** (int(math.log10(value)) - 2), (value, unit, '$planned')
assert rows[0]['memory_peak_bytes']['host']['other'] == 0, 'before the first save'
" out/metrics.jsonl
  rm -r out
done
[[ -z $(copy --set batch.global=12 --set batch.micro=1 --set checkpoint.every=6) ]] || fail 'the last save takes no copy'
[[ -z $(copy --set batch.global=12 --set batch.micro=1 --set checkpoint.every=2 --set checkpoint.async=false) ]] ||
  fail 'a save that waits takes no copy'

# Host memory is as planned, by category: offload, activations and the copies of saves together.
for settings in "--set memory.offload=parameters --set memory.activation_offload=true --set memory.activation_offload_min_bytes=0" \
  "--set memory.offload=optimizer --set memory.offload_fraction=0.5 --set mesh.replicate=2 --set sync.policy=deferred"; do
  # shellcheck disable=SC2086  # several options in one variable
  job 2 train run.toml --set batch.micro=1 --set checkpoint.every=2 --set checkpoint.at_end=true $settings
  expect_done
  program plan --compare out
  expect_done
  for category in parameters.sharded gradients.sharded optimizer other 'sum of these peaks'; do
    grep -qE "^host $category .* equal$" out.txt || fail "host memory is not as planned: $category, $settings"
  done
  ! grep -E "^host .*%$" out.txt || fail "host memory is not as planned: $settings"
  grep -qE "^host memory of a node: .* \(2 ranks; .* are copies for checkpoint.async\)$" out.txt || fail "no host memory of a node"
  rm -r out
done

export TRIREME_FAULT=memory.allocate:nan:1:2
job 2 train run.toml
expect_end 5 "out of memory in \`" "What to do: "
grep -qE "^category +memory +bytes +of which requested now +highest during" err.txt || fail "no table by category"
grep -qE "^optimizer +device +[0-9.]+ .?i?B" err.txt || fail "no line for the optimizer"
grep -qE "^to need less, one of +saves a rank +costs a rank and step" err.txt || fail "no table of remedies"
grep -qE "^memory.recompute = \"block\" " err.txt || fail "no line for recompute"
