# SPDX-License-Identifier: Apache-2.0
#
# Goodput of a run that is killed twice: steps that were repeated, and parts whose sum is the time of the run. Restarts by
# trireme supervise: tests/cli/supervise.
# timeout: 120
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

begin=$(date +%s.%N)
run=(train run.toml --set train.steps=12 --set checkpoint.every=4 --set checkpoint.async=false)
TRIREME_FAULT=step.begin:kill:0:10 job 2 "${run[@]}"
((status != 0)) || fail 'the first kill'
printf '{"event":"sa' >>out/goodput.jsonl  # a write that a kill cut off
TRIREME_FAULT=step.begin:kill:0:9 job 2 "${run[@]}"
((status != 0)) || fail 'the second kill'
grep -q 'goodput so far: .* in 2 attempts: ' err.txt || fail 'no goodput in the log of the second attempt'
job 2 "${run[@]}" --set data.validation=tokens.bin --set train.eval_every=4 --set train.eval_steps=2
expect_done
grep -Eq '^goodput [0-9.]+% of .* in 3 attempts: .*, 3 repeated steps ' out.txt || fail 'no goodput in the summary'
python3 - "$begin" <<'PYTHON' || fail 'goodput.jsonl'
import json, sys, time
events = []
for line in open("out/goodput.jsonl"):
    try:
        events.append(json.loads(line))
    except json.JSONDecodeError:
        assert line == '{"event":"sa\n', line
kinds = [e["event"] for e in events]
assert " ".join(kinds) == "start load save save start load start load evaluation caught_up save evaluation save end", kinds
assert [e["step"] for e in events if e["event"] == "start"] == [0, 10, 9]
assert [e["step"] for e in events if e["event"] == "load"] == [0, 8, 8]
assert [e["step"] for e in events if e["event"] == "caught_up"] == [10]
times = [e["time"] for e in events]
assert times == sorted(times) and float(sys.argv[1]) < events[0]["began"] < times[0] and times[-1] < time.time()
rows = [json.loads(line) for line in open("out/metrics.jsonl")]
rows = [r for r in rows if "loss" in r]
assert [r["step"] for r in rows] == list(range(1, 13)) and all(0 < r["goodput"] < 1 for r in rows)
# The share of the last row, from the events: new steps are those before the first kill and after the repeated ones.
starts = [e for e in events if e["event"] == "start"]
first, last = starts[0], starts[-1]
caught, loads = [e for e in events if e["event"] == "caught_up"][0], [e for e in events if e["event"] == "load"]
stalls = lambda a, b: sum(e["seconds"] for e in events if a < e["time"] <= b and e["event"] in ("save", "evaluation"))
new = starts[1]["step_time"] - loads[0]["time"] - stalls(loads[0]["time"], starts[1]["step_time"])
new += rows[-1]["time"] - caught["time"] - stalls(caught["time"], rows[-1]["time"])
total = sum(b["step_time"] - a["began"] for a, b in zip(starts, starts[1:])) + rows[-1]["time"] - last["began"]
assert abs(new / total - rows[-1]["goodput"]) < 0.01, (new / total, rows[-1]["goodput"])
PYTHON
"$TRIREME" report out -o page.html >/dev/null
for text in '<h2>Goodput</h2>' '3 attempts, 2 failures' '<td>3 repeated steps</td>' '<td>start</td>'; do
  grep -q "$text" page.html || fail "no $text in the report"
done
"$TRIREME" export-metrics out --to prometheus >/dev/null
grep -q '^trireme_goodput{.*} 0\.' out/trireme.prom || fail 'no goodput for Prometheus'

# A run that starts over begins its record anew; so does one with another output.
job 2 "${run[@]}" --set run.overwrite=true
expect_done
[[ $(grep -c '"event":"start"' out/goodput.jsonl) == 1 ]] || fail 'a new run continues the record of another'
! grep -q 'goodput so far' err.txt || fail 'a new run logs goodput at its start'
