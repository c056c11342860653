# SPDX-License-Identifier: Apache-2.0
#
# trireme data: sources, duplicates, samples and hashes; epochs and temperature of mixtures.
# timeout: 300
# Fault, data: a run longer than the epochs of all its sources -> exit code 2 with both numbers of samples
# Fault, data: a token file whose bytes differ from its sidecar's hash -> `trireme data --verify`: exit code 3
source "$TRIREME_SOURCE/tests/cli/small_run.sh"
export TRIREME_CACHE=$work/cache

python3 - <<'PYTHON'
import json
words = open("text.txt").read().split()
def write(name, documents): open(name, "w").write("".join(json.dumps(d) + "\n" for d in documents))
write("web.jsonl", [{"text": " ".join(words[i:i + 40])} for i in range(0, 4000, 10)])
write("few.jsonl", [{"text": "oars and sails " * 10}, {"text": "wind"}, {"text": "oars and sails " * 10}, {"text": " ".join(words[0:40])}])
write("answers.jsonl", [{"q": "the ship? ", "a": "yes"}] * 60)
PYTHON

program data run.toml --set data.train='["web.jsonl", "few.jsonl"]'
expect_done
grep -qE '^/.*/\.trireme-tokens/[0-9a-f]+/tokens.bin +404 +[0-9]+ +[0-9]+ +0\.99 +100.00% +0\.' out.txt || fail 'no row of the source'
mix='[{path="web.jsonl",weight=1,epochs=0.2},{path="few.jsonl",weight=3,epochs=4},{path="tokens.bin",weight=1}]'
job 2 data run.toml --set data.train="$mix" --set train.steps=50 --duplicates --verify
expect_done
awk '$1 == "packing" { exit } $1 ~ /tokens.bin$/ { print $2, $6, $8 }' out.txt >rows.txt
[[ $(wc -l <rows.txt) == 3 ]] || fail 'three sources have no three rows'
read -r documents duplicates epochs <<<"$(sed -n 1p rows.txt)"
[[ $documents == 400 && $duplicates == 0 ]] || fail "web: $documents documents, $duplicates duplicates"
awk "BEGIN { exit !($epochs <= 0.202) }" || fail "web is seen $epochs times"
read -r documents duplicates epochs <<<"$(sed -n 2p rows.txt)"
[[ $documents == 4 && $duplicates == 2 ]] || fail "few: $documents documents, $duplicates duplicates"
awk "BEGIN { exit !($epochs > 3.5 && $epochs <= 4.1) }" || fail "few is seen $epochs times"
grep -q '3 token files match the hashes' out.txt || fail 'hashes were not compared'

# The run follows these weights; its recorded run file has them.
job 2 train run.toml --set data.train="$mix" --set train.steps=50 --set run.output=mixed
expect_done
grep -qE '^train = \[\{ path = ".*tokens.bin", weight = 0\.[0-9]+ \}, ' mixed/run.toml || fail 'the run file lacks the weights'
program train run.toml --set data.train='[{path="few.jsonl",weight=1,epochs=2}]' --set run.output=none
expect_end 2 'within the epochs of its sources' 'raise the epochs'
program train run.toml --set data.train='["few.jsonl#epochs=2"]' --set run.output=none
expect_end 2 'epochs and temperature need { path, weight }'
program data run.toml --set data.train='[{path="web.jsonl",temperature=2},{path="tokens.bin",temperature=2}]'
expect_done

# Samples: text that does not count is marked, documents are divided.
program data run.toml --set data.train='answers.jsonl#field=q,response=a' --set data.shuffle=false --set data.document_mask=true --samples 2
expect_done
grep -qF '⟦the ship? ⟧yes' out.txt || fail 'a prompt is not marked'
grep -q '^--- document$' out.txt || fail 'documents are not divided'
grep -qE '^sample 1: [0-9]+ of 32 targets count' out.txt || fail 'no count of targets'
printf 'X' | dd of=tokens.bin bs=1 seek=100 conv=notrunc status=none
program data run.toml --verify
expect_end 3 'tokens.bin: its hash is'
