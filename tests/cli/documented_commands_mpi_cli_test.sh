# SPDX-License-Identifier: Apache-2.0
#
# Every trireme command that README, docs and --help show, in their order, on small files by the names that they use: each
# ends with exit code 0. And every option that a document names is one (of keys and messages: tests/documents_test.py).
# timeout: 900
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

commands=(init train plan submit tokenize data generate evaluate report export-metrics doctor inspect verify export import completion man)
export COLUMNS=1000  # no command is wrapped
"$TRIREME" --help >help.txt
for command in "${commands[@]}"; do "$TRIREME" "$command" --help >"help-$command.txt"; done

# The files: one text, a run file for training and one that fits thousands of ranks, a tokenizer, a downloaded model.
mkdir -p inputs runs/data  # data/ is made by the first tokenize
cp text.txt book.txt
cp text.txt web-1.txt
cp text.txt web-2.txt
for name in quickstart quickstart-mixture; do
  sed -E 's/^steps = [0-9]+/steps = 4/; s/^warmup_steps = [0-9]+/warmup_steps = 1/' "$TRIREME_SOURCE/inputs/$name.toml" >"inputs/$name.toml"
done
sed -e 's/^output = .*/output = "runs\/book"\nexport = "end"/' -e 's/^train = .*/train = "data\/book.bin"/' -e 's/^at_end = .*/at_end = true\nkeep = 10/' -i run.toml
sed -e 's/^global = .*/global = 16384/' -e 's/^micro = .*/micro = 1/' run.toml >plan.toml
cat >answers.jsonl <<'LINES'
{"prompt": "Where is the ship? ", "response": "At sea, with three banks of oars."}
{"prompt": "Where is the wind? ", "response": "In the sails of the ship, and over the island."}
LINES
cat >questions.jsonl <<'LINES'
{"context": "the ship has three", "endings": ["banks of oars", "zebras"], "label": 0}
{"context": "oars and", "endings": ["quartz", "sails"], "label": "1"}
LINES
tokenizer=bytes
if command -v spm_train >/dev/null; then
  spm_train --input=text.txt --model_prefix=tokenizer --vocab_size=80 --hard_vocab_limit=false --minloglevel=2 2>spm.log
  tokenizer=spm:tokenizer.model
else
  not_tried 'SentencePiece models: spm_train is not there'
fi

cat >shown.py <<'PY'
"""shown.py SOURCE: the commands that are shown, one a line, as documents and help write them."""
import pathlib, re, sys
source = pathlib.Path(sys.argv[1])
helps = [pathlib.Path("help.txt"), *sorted(pathlib.Path(".").glob("help-*.txt"))]
command = re.compile(r" {2,}(?:\$ )?((?:mpirun|srun)?.*\btrireme (?:%s)\b.*)" % "|".join(sys.argv[2:]))
for path in [source / "README.md", *helps, *sorted((source / "docs").glob("*.md"))]:
    for line in path.read_text().splitlines():
        found = command.fullmatch(line)
        if found and re.match(r"trireme|mpirun|srun", found[1]):
            print(path.name, re.split(r" {2,}| #| \|", found[1])[0].strip(), sep="\t")
PY
# The run in the commands of the documents; README makes its own.
"$TRIREME" tokenize --tokenizer bytes -o data/book.bin book.txt >/dev/null
job 4 train run.toml --set train.steps=4
expect_done
python3 shown.py "$TRIREME_SOURCE" "${commands[@]}" >shown.txt
(($(wc -l <shown.txt) >= 30)) || fail "only $(wc -l <shown.txt) commands were found"

# as_run COMMAND: with small files in place of its large ones, and names in place of words such as CHECKPOINT.
as_run() {
  local text=$1
  text=${text//train.steps=1000/train.steps=4}
  text=${text//train.steps=2000/train.steps=8}
  text=${text//train.steps=1200/train.steps=6}
  text=${text//wsd_decay_steps=200/wsd_decay_steps=2}
  text=${text//step-00001000/step-00000004}
  text=${text//step-00000800/step-00000004}
  text=${text//'[--dtype fp32]'/--dtype fp32}
  text=${text//-o CHECKPOINT/-o imported}
  text=${text//CHECKPOINT/runs\/book\/checkpoints\/step-00000004}
  text=${text//-o HF_DIR/-o exported}
  text=${text//HF_DIR/exported}
  text=${text//--prompt TEXT/--prompt ship}
  text=${text//--data TOKENS/--data data/book.bin}
  [[ $tokenizer != bytes ]] || text=${text//spm:*([^ ])/bytes}
  [[ $text != "trireme plan run.toml"* ]] || text=${text//run.toml/plan.toml}
  [[ $text != "trireme submit run.toml"* ]] || text="${text//run.toml/plan.toml} --dry-run"
  text=${text//--compare runs\/first/--compare runs\/book}
  [[ $text != *"--show pipeline"* && $text != *--pipeline-rank* ]] || text+=" --set mesh.pipeline=4 --set model.layers=4"
  [[ $text != srun* ]] || text="mpirun -n 2 trireme${text#*trireme}"
  text=${text//--bind-to none /}
  printf '%s' "${text//mpirun /$MPIEXEC $MPIEXEC_FLAGS }"
}
shopt -s extglob
mkdir bin
ln -s "$TRIREME" bin/trireme
PATH=$work/bin:$PATH
runs=0
while IFS=$'\t' read -r where shown; do
  text=$(as_run "$shown")
  if [[ $text == *Llama-2-7b-hf* && ! -d Llama-2-7b-hf ]]; then
    cp -r runs/book/export Llama-2-7b-hf
    # Its tokenizer is SentencePiece's: the export's settings name tokens of another one.
    rm -f Llama-2-7b-hf/tokenizer_config.json
    [[ $tokenizer == bytes ]] || cp tokenizer.model Llama-2-7b-hf/
  fi
  # `init` writes over nothing, several documents show the same one, and the run of another text is not resumed.
  [[ $text != "trireme init"* ]] || rm -rf first.toml continued.toml tuned.toml runs/first
  launch bash -c "$text" </dev/null  # mpirun would read the list
  ((status == 0)) || fail "$where shows: $shown"
  ((++runs))
done <shown.txt
((runs == $(wc -l <shown.txt))) || fail "only $runs of $(wc -l <shown.txt) commands were run"
echo "$runs commands"

cat >options.py <<'PY'
"""options.py SOURCE COMMAND...: options of `trireme COMMAND` in documents that its help does not have."""
import pathlib, re, sys
wrong = 0
for path in [pathlib.Path(sys.argv[1]) / "README.md", *sorted((pathlib.Path(sys.argv[1]) / "docs").glob("*.md"))]:
    for command, rest in re.findall(r"`trireme (%s)\b([^`]*)`" % "|".join(sys.argv[2:]), path.read_text()):
        for option in re.findall(r"(?<!\S)--[a-z][a-z-]*", rest):
            if option not in pathlib.Path(f"help-{command}.txt").read_text():
                print(f"{path.name}: trireme {command} has no {option}")
                wrong += 1
sys.exit(wrong != 0)
PY
python3 options.py "$TRIREME_SOURCE" "${commands[@]}" >out.txt || fail 'options that there are not'
