# SPDX-License-Identifier: Apache-2.0
#
# TensorBoard's events of a run that is killed and resumes: every number of metrics.jsonl, each step once; read by a few lines of
# Python, and by TensorBoard itself if python3 has it. The training is the same, bit for bit.
# timeout: 200
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

sed -e 's/^at_end = .*/&\nevery = 4\nasync = false/' -e 's/^steps = .*/steps = 10\neval_every = 3\neval_steps = 1/' \
  -e 's/^train = .*/&\nvalidation = ["tokens.bin"]/' -i run.toml
with_events=(train run.toml --set metrics.tensorboard=true --set metrics.peak_flops=1e12)
job 2 train run.toml --set run.output=plain
expect_done
[[ ! -e plain/tensorboard ]] || fail 'events that nobody asked for'

TRIREME_FAULT=step.begin:kill:0:7 job 2 "${with_events[@]}"
((status != 0)) || fail 'it was not killed'
json_check 'assert rows[-1]["step"] == 7' out/metrics.jsonl
events=(out/tensorboard/events.out.tfevents.*)
((${#events[@]} == 1)) || fail "${#events[@]} event files of one life"
truncate -s -5 "${events[0]}"  # half an event, as a node that dies leaves it
job 2 "${with_events[@]}"
expect_done
events=(out/tensorboard/*)
((${#events[@]} == 2)) || fail "${#events[@]} event files of two lives"
job 2 "${with_events[@]}" --set train.steps=12
expect_done

cat >curves.py <<'PYTHON'
import json, os, struct, sys

def crc32c(data):
    rest = 0xFFFFFFFF
    for byte in data:
        rest ^= byte
        for _ in range(8):
            rest = rest >> 1 ^ (rest & 1) * 0x82F63B78
    return rest ^ 0xFFFFFFFF

def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

def records(data):
    while len(data) >= 12:
        length, check = struct.unpack("<QI", data[:12])
        assert check == masked(data[:8]), "the length's checksum"
        if len(data) < length + 16:
            return
        event = data[12 : 12 + length]
        assert struct.unpack("<I", data[12 + length : 16 + length])[0] == masked(event), "the event's checksum"
        yield event
        data = data[16 + length :]

def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at

def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            size, at = varint(data, at) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], at)
            value, at = data[at : at + size], at + size
        yield key >> 3, value

def read(directory):
    """By tag its points (step, wall time, value), as TensorBoard joins a directory's files."""
    curves, starts = {}, []
    for name in sorted(os.listdir(directory)):
        for number, event in enumerate(records(open(f"{directory}/{name}", "rb").read())):
            found = dict(fields(event))
            wall_time, step = struct.unpack("<d", found[1])[0], found.get(2, 0)
            assert (found.get(3) == b"brain.Event:2") == (number == 0), "the first event, and no other, has the version"
            if 7 in found:
                assert dict(fields(found[7])) == {1: 1}
                starts.append(step)
                curves = {tag: [p for p in points if p[0] < step] for tag, points in curves.items()}
            for field, summary in fields(found.get(5, b"")):
                value = dict(fields(summary))
                points = curves.setdefault(value[1].decode(), [])
                points.append((step, wall_time, struct.unpack("<f", value[2])[0]))
    return curves, starts

def as_float(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]

rows = [json.loads(line) for line in open("out/metrics.jsonl")]
plain = [json.loads(line) for line in open("plain/metrics.jsonl")]
same = lambda row: (row["step"], row.get("loss"), row.get("grad_norm"), row.get("eval_loss"))
assert [same(r) for r in rows if r["step"] <= 10] == [same(r) for r in plain], "another training than without events"

curves, starts = read("out/tensorboard")
assert starts == [1, 5, 9], starts
steps, evaluations = [r for r in rows if "loss" in r], [r for r in rows if "loss" not in r]
for before, row in zip(steps, steps[1:]):
    row.setdefault("comm_bytes", before["comm_bytes"])  # written where it changes
assert [r["step"] for r in steps] == list(range(1, 13)) and [r["step"] for r in evaluations] == [3, 6, 9, 12]
for tag, of, value in [
    ("loss/train", steps, lambda r: r["loss"]),
    ("loss/validation", evaluations, lambda r: r["eval_loss"]),
    ("time/validation_seconds", evaluations, lambda r: r["eval_seconds"]),
    ("optim/grad_norm", steps, lambda r: r["grad_norm"]),
    ("optim/lr", steps, lambda r: r["lr"]),
    ("speed/tokens_per_second", steps, lambda r: r["tokens_per_second"]),
    ("speed/tokens_per_second_per_rank", steps, lambda r: r["tokens_per_second_per_rank"]),
    ("speed/mfu", steps, lambda r: r["mfu"]),
    ("time/step_seconds", steps, lambda r: r["step_seconds"]),
    ("time/data_seconds", steps, lambda r: r["data_seconds"]),
    ("time/exposed_comm_seconds", steps, lambda r: r["exposed_comm_seconds"]),
    ("progress/tokens", steps, lambda r: r["tokens"]),
    ("memory/rss", steps, lambda r: r["memory_peak_bytes"]["rss"]),
    ("memory/device/total", steps, lambda r: r["memory_peak_bytes"]["device"]["total"]),
    ("memory/device/optimizer", steps, lambda r: r["memory_peak_bytes"]["device"]["optimizer"]),
    ("traffic/shard/all_gather", steps, lambda r: r["comm_bytes"]["shard"]["all_gather"]),
    ("traffic/shard/reduce_scatter", steps, lambda r: r["comm_bytes"]["shard"]["reduce_scatter"]),
]:
    assert [(s, v) for s, _, v in curves[tag]] == [(r["step"], as_float(value(r))) for r in of], tag
    assert all(abs(t - r["time"]) < 30 for (_, t, _), r in zip(curves[tag], of)), f"{tag}: times"
for tag, points in curves.items():
    seen = [s for s, _, _ in points]
    assert seen == sorted(set(seen)), f"{tag}: {seen}"

try:
    from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
    from tensorboard.util import tensor_util
except ImportError:
    print("python3 has no TensorBoard: read by this test alone")
    sys.exit()

def same_curves(reader, tags, points_of):
    assert set(tags) == set(curves), f"{reader}: {set(tags) ^ set(curves)}"
    for tag, points in curves.items():
        assert points_of(tag) == points, f"{reader}: {tag}"
    print(f"{reader} reads the same {len(tags)} curves")

old = event_accumulator.EventAccumulator("out/tensorboard", size_guidance={"scalars": 0}).Reload()
same_curves("event_accumulator", old.Tags()["scalars"], lambda tag: [(e.step, e.wall_time, e.value) for e in old.Scalars(tag)])
new = plugin_event_accumulator.EventAccumulator("out/tensorboard", tensor_size_guidance={"scalars": 0}).Reload()
value_of = lambda event: float(tensor_util.make_ndarray(event.tensor_proto))
same_curves("plugin_event_accumulator", new.Tags()["tensors"],
            lambda tag: [(e.step, e.wall_time, value_of(e)) for e in new.Tensors(tag)])
PYTHON
python3 curves.py >read.txt || fail 'the curves'
cat read.txt

# Started over: no events of the previous run.
job 2 "${with_events[@]}" --set run.overwrite=true --set checkpoint.resume=none --set train.steps=2
expect_done
events=(out/tensorboard/*)
((${#events[@]} == 1)) || fail "${#events[@]} event files of a run that began anew"

# An unwritable path: an error before the first step, with a remedy.
rm -rf out
mkdir out
touch out/tensorboard
job 2 "${with_events[@]}"
expect_end 8 'out/tensorboard' 'metrics.tensorboard'
json_check 'assert not rows' out/metrics.jsonl
