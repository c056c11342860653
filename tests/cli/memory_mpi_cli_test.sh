# SPDX-License-Identifier: Apache-2.0
#
# Where memory goes, as a person sees it: the metrics and the end of the run name the op of each peak, and a run whose
# memory ends says what fills it, in which op, and what to change.
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

export TRIREME_FAULT=memory.allocate:nan:1:2
job 2 train run.toml
expect_end 5 "out of memory in \`" "highest during" "of which asked for now" "What to do" "saves a rank" "memory.recompute = \"block\""
