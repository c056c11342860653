# SPDX-License-Identifier: Apache-2.0
#
# The numbers of `trireme report` are those of metrics.jsonl. In a browser without a screen: no error and no request, the
# same numbers, and the page is light, dark where the browser is, and light on paper. jobs/setup.sh --browser installs one.
# report --watch, and trireme export-metrics of the same run.
# timeout: 120
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

# A run with every part of the page: validation, a traced step, a restart, a second run.
"$TRIREME" tokenize --tokenizer bytes -o validation.bin text.txt >/dev/null
program train run.toml --set train.steps=12 --set train.eval_every=3 --set data.validation=validation.bin --set checkpoint.every=4 \
  --set 'metrics.trace_steps=[3]'
expect_done
program train run.toml --set train.steps=20 --set train.eval_every=3 --set data.validation=validation.bin
expect_done
program train run.toml --set run.output=second --set optimizer.lr=5e-3
expect_done
program report out -o one.html
expect_done
program report out second -o two.html
expect_done

# A watched run: the page reloads until the run has ended, and a signal writes the last one.
[[ $(<two.html) != *'http-equiv="refresh"'* ]] || fail 'a page that nobody watches reloads'
program report out --watch -o watched.html
expect_done
[[ $(<watched.html) != *'http-equiv="refresh"'* ]] || fail 'the page of a run that has ended reloads'
mkdir soon
cp out/run.toml soon
"$TRIREME" report soon --watch 1 -o soon.html >out.txt 2>err.txt &
watching=$!
for _ in {1..100}; do ! grep -q 'waiting: .*no metrics.jsonl' err.txt || break; sleep 0.1; done
grep -q 'waiting: .*no metrics.jsonl' err.txt || fail 'report --watch does not wait for the first step'
head -n 5 out/metrics.jsonl >soon/metrics.jsonl
for _ in {1..100}; do [[ ! -e soon.html ]] || break; sleep 0.1; done
grep -q 'http-equiv="refresh" content="1"' soon.html || fail 'the page of a running run does not reload'
kill -INT $watching
wait $watching || fail "report --watch ends with $? after SIGINT"
[[ $(<soon.html) != *'http-equiv="refresh"'* ]] || fail 'the page reloads after report --watch has ended'
program report missing --watch
((status == 2)) || fail "report --watch of no directory ends with $status"

# The files of other tools. Values are compared by tests/report/export_test.cpp.
for tool in wandb mlflow prometheus; do
  program export-metrics out --to $tool
  expect_done
done
cat >exported.py <<'PY'
"""Records of the wandb log by their checksums, MLflow's metric file and Prometheus' text against metrics.jsonl."""
import glob, json, os, re, struct, zlib
losses = [(row["step"], row["loss"]) for row in map(json.loads, open("out/metrics.jsonl")) if "loss" in row]
(log,) = glob.glob("wandb/offline-run-*/run-*.wandb")
data, at, records = open(log, "rb").read(), 7, 0
while at + 7 <= len(data):
    if 32768 - at % 32768 < 7:
        at += 32768 - at % 32768
        continue
    crc, size, kind = struct.unpack("<IHB", data[at : at + 7])
    assert zlib.crc32(data[at + 6 : at + 7 + size]) == crc
    records += kind in (1, 4)
    at += 7 + size
assert at == len(data) and records == len(losses) + 4, records  # header, run, summary, exit
(run,) = glob.glob("mlruns/*/*/meta.yaml")
run = os.path.dirname(run)
rows = [line.split() for line in open(run + "/metrics/loss")]
assert [(int(step), float(value)) for _, value, step in rows] == losses
assert os.path.isdir(run + "/artifacts") and open(run + "/params/optimizer.lr").read() == "0.01"
text = open("out/trireme.prom").read()
assert f'trireme_loss{{run="out"}} {losses[-1][1]}' in text
assert all(re.fullmatch(r"# (HELP|TYPE) trireme_.*|trireme_\w+\{run=\"out\".*\} \S+", line) for line in text.splitlines())
PY
python3 exported.py >out.txt 2>err.txt || fail 'the exported metrics'
program export-metrics out --to csv
((status == 2)) || fail "export-metrics to an unknown tool ends with $status"

cat >numbers.py <<'PY'
"""numbers.py METRICS PAGE RUN: curves as they are drawn, and facts, against metrics.jsonl."""
import html, json, re, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
dom = open(sys.argv[2]).read()
run = int(sys.argv[3])
runs = json.loads(html.unescape(re.search(r'id="series">(.*?)</script>', dom, re.S)[1]))

def of_rows(key):
    for row in rows:
        value = row
        for part in key.split("/"):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            yield [row["step"], value]

for key, points in runs[run]["series"].items():
    assert points == list(of_rows(key)), key
compared = 0
for title, key in [("Loss (nats per token)", "loss"), ("Gradient norm, before clipping", "grad_norm"), ("Learning rate", "lr")]:
    svg = re.search(rf'<svg[^>]*aria-label="{re.escape(title)}".*?</svg>', dom, re.S)[0]
    color = run  # in every chart
    path = max(re.findall(rf'class="l{color}" d="(M[^"]*)"', svg), key=len)  # that of validation has fewer points
    drawn = [tuple(map(float, point.split())) for point in re.split("[ML]", path)[1:]]
    text = r'<text class="{}" x="([\d.]+)" y="([\d.]+)">([\d.e+-]+)</text>'
    xs = [(float(x), float(value)) for x, y, value in re.findall(text.format("mid"), svg)]
    ys = [(float(y) - 4, float(value)) for x, y, value in re.findall(text.format("end"), svg)]
    def scaled(at, marks):
        (a, low), (b, high) = marks[0], marks[-1]
        return low + (at - a) / (b - a) * (high - low)
    wanted = list(of_rows(key))
    assert len(drawn) == len(wanted) and len(xs) > 1 and len(ys) > 1, (title, len(drawn), len(wanted))
    span = abs(ys[-1][1] - ys[0][1])
    for (x, y), (step, value) in zip(drawn, wanted):
        assert abs(scaled(x, xs) - step) < 0.05, (title, step)
        assert abs(scaled(y, ys) - value) < 0.01 * span, (title, step, scaled(y, ys), value)
        compared += 1
loss = [value for _, value in of_rows("loss")][-1]
assert f"<td>{loss:.5g}</td>" in dom, "last loss"
print(compared, "points")
sys.exit(compared < 15)
PY
# same_numbers PREFIX: of the pages, or of the text that a browser rendered from them.
same_numbers() {
  python3 numbers.py out/metrics.jsonl "$1one.html" 0 >out.txt 2>err.txt || fail "$1: the numbers of one run"
  python3 numbers.py out/metrics.jsonl "$1two.html" 0 >out.txt 2>err.txt || fail "$1: the numbers of the first of two runs"
  python3 numbers.py second/metrics.jsonl "$1two.html" 1 >out.txt 2>err.txt || fail "$1: the numbers of the second of two runs"
  local part
  for part in 'Timeline of step 3' 'Device memory over step 3' 'restart before step' 'Step times by rank' 'class="l1"'; do
    grep -q "$part" "$1one.html" || fail "$1: no \"$part\" on the page"
  done
}
same_numbers ""

browser=
for name in chromium chromium-browser google-chrome; do
  if [[ -z $browser ]] && command -v "$name" >/dev/null; then browser=$name; fi
done
if [[ -z $browser ]]; then
  not_tried 'report.html in a browser: no chromium here (jobs/setup.sh --browser)'
  exit 0
fi

# opened PAGE ARGUMENTS: by a browser that is new every time and finds no host.
opened() {
  local page=$1
  shift
  rm -rf profile
  timeout 60 "$browser" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --no-first-run --disable-sync --user-data-dir="$work/profile" \
    --disable-background-networking --disable-component-update --disable-default-apps --host-resolver-rules='MAP * ~NOTFOUND' \
    --enable-logging=stderr --window-size=1500,2300 --log-net-log="$work/net.json" "$@" "file://$work/$page" 2>log.txt ||
    fail "$browser ends with $?: $(tail -n 3 log.txt)"
}
# Network requests of the pages, excluding the browser's.
requests() { grep -oE '"url":"https?://[^"/]*' net.json | grep -vE '\.(google|googleapis|gvt1)\.com' | sort -u; }

for page in one.html two.html; do
  opened "$page" --dump-dom >"dom-$page"
  ! grep CONSOLE log.txt || fail "$page has errors"
  [[ -z $(requests) ]] || fail "$page requests $(requests)"
done
# The same checks on a page with requests and errors.
sed 's|<meta http-equiv[^>]*>|<img src="http://127.0.0.1:9/x.png"><script>nowhere()</script>|' one.html >bad.html
opened bad.html --dump-dom >/dev/null
grep -q CONSOLE log.txt || fail 'an error of a page is not seen'
[[ $(requests) == *127.0.0.1* ]] || fail 'a request of a page is not seen'
sed 's|<h1>|<img src="http://127.0.0.1:9/x.png"><h1>|' one.html >bad.html
opened bad.html --dump-dom >/dev/null
[[ -z $(requests) ]] || fail 'the content security policy lets pages ask'

same_numbers dom-
cat >corner.py <<'PY'
"""corner.py PNG: its first pixel, and whether it has more than a few colors in its compressed bytes."""
import struct, sys, zlib
data, at, packed = open(sys.argv[1], "rb").read(), 8, b""
while at < len(data):
    size, kind = struct.unpack(">I4s", data[at : at + 8])
    if kind == b"IDAT":
        packed += data[at + 8 : at + 8 + size]
    at += 12 + size
print(*zlib.decompressobj().decompress(packed, 4)[1:4])  # of the first pixel every filter leaves the value
sys.exit(len(packed) < 20000)
PY
# At 400 pixels nothing is wider than the screen: a script that the page's policy forbids is given to a copy without it.
sed 's|<meta http-equiv="Content[^>]*>||; s|</body>|<script>document.title = "width " + document.documentElement.scrollWidth</script></body>|' one.html >narrow.html
opened narrow.html --window-size=500,900 --dump-dom >dom.txt
[[ $(<dom.txt) =~ '<title>width '([0-9]+)'</title>' ]] || fail 'the width of the page is unknown'
((BASH_REMATCH[1] <= 500)) || fail "the page is ${BASH_REMATCH[1]} pixels wide on a screen of 500"
opened one.html --screenshot="$work/light.png"
opened two.html --screenshot="$work/dark.png" --blink-settings=preferredColorScheme=0
[[ $(python3 corner.py light.png) == '255 255 255' ]] || fail 'the light page is not light, or empty'
[[ $(python3 corner.py dark.png) == '20 22 26' ]] || fail 'the dark page is not dark, or empty'
opened one.html --print-to-pdf="$work/print.pdf" --no-pdf-header-footer
[[ $(head -c 5 print.pdf) == %PDF- && $(stat -c %s print.pdf) -gt 10000 ]] || fail 'the page does not print'
