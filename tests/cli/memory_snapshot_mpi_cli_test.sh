#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# memory-rankN.pickle: Python's reader opens it, its events lead to the allocations at its end, and these equal the
# metrics.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/small_run.sh"

job 2 train run.toml --set metrics.memory_snapshot=true
expect_done
job 2 train run.toml --set run.output=traced --set metrics.memory_snapshot=true --set 'metrics.trace_steps=[4]'
expect_done

cat >check.py <<'PYTHON'
import json, pickle, sys

directory, last_step = sys.argv[1], int(sys.argv[2])
rows = [json.loads(line) for line in open(f"{directory}/metrics.jsonl")]
for rank in (0, 1):
    snapshot = pickle.load(open(f"{directory}/memory-rank{rank}.pickle", "rb"))
    assert len(snapshot["device_traces"]) == 2
    live, steps, ops, peak = {}, set(), set(), {}
    for event in snapshot["device_traces"][0]:
        frame = event["frames"][0]
        if event["action"] == "alloc":
            assert event["addr"] not in live, "allocated twice"
            live[event["addr"]] = event
            steps.add(frame["line"])
            ops.add(frame["filename"].split()[0])
        elif event["action"] == "free_completed":
            assert live.pop(event["addr"])["size"] == event["size"]
        by_category = {}
        for block in live.values():
            name = block["frames"][0]["name"]
            by_category[name] = by_category.get(name, 0) + block["size"]
        for name, size in by_category.items():
            peak[name] = max(peak.get(name, 0), size)
    segments = [s for s in snapshot["segments"] if s["device"] == 0]
    assert {s["address"] for s in segments} == set(live), "what lives is not what the events lead to"
    assert all(sum(b["size"] for b in s["blocks"]) == s["total_size"] for s in segments)
    assert max(steps) == last_step, f"steps {sorted(steps)}"
    assert {"forward", "backward", "outside"} <= ops, ops
    if rank == 0:
        logged = rows[last_step - 1]["memory_peak_bytes"]["device"]
        for name in ("parameters.sharded", "optimizer", "activations", "gradients.unsharded"):
            assert peak[name] == logged[name], f"{name}: {peak[name]} in the snapshot, {logged[name]} in the metrics"
PYTHON
python3 check.py out 2 || fail "the snapshot of the first steps is not right"
python3 check.py traced 4 || fail "the snapshot of a traced step is not right"
