# SPDX-License-Identifier: Apache-2.0
#
# Two ranks in separate working directories, like nodes with local disks: different files are rejected before anything is written,
# output directories are those of rank 0, a directory that a rank does not see ends the start.
# timeout: 300
# Fault, start: nodes with other input files under one path -> exit code 3 or 4 with rank, node, file, before anything
#   is written
# Fault, start: a node cannot see or write `checkpoint.directory` -> exit code 8 with rank and node before step 1
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

mkdir A B
mv tokens.bin run.toml A
cp A/* B
# nodes ARGUMENTS: rank 0 in A, rank 1 in B.
nodes() {
  # shellcheck disable=SC2086  # several options in one variable
  launch $MPIEXEC $MPIEXEC_FLAGS -n 1 -wdir "$work/A" "$TRIREME" train run.toml "$@" : \
    -n 1 -wdir "$work/B" "$TRIREME" train run.toml "$@"
}
saves=(--set checkpoint.at_end=true --set checkpoint.every=3)
valid=(--set 'data.validation=["valid.bin"]' --set train.eval_every=3)

# Equal copies: one run, whose relative directories are in A; it resumes.
head -c 20000 A/tokens.bin >A/valid.bin
cp A/valid.bin B
nodes "${saves[@]}" "${valid[@]}"
expect_done
[[ -d A/out/checkpoints/step-00000006 && ! -e B/out ]] || fail "the output is not in rank 0's directory"
nodes "${saves[@]}" "${valid[@]}" --set train.steps=7
expect_done
grep -q 'resuming from .*step 6' err.txt || fail "no resume"

# One start for each kind of file; the last ones with a pipeline, and at a resume.
head -c 1000 A/valid.bin >B/valid.bin
nodes "${saves[@]}" "${valid[@]}" --set train.steps=8
expect_end 3 'rank 1 on ' 'token file valid.bin' '1000 bytes here, 20000 bytes on rank 0'
head -c 30000 A/tokens.bin >B/tokens.bin
nodes "${saves[@]}" --set train.steps=8
expect_end 3 'rank 1 on ' 'token file tokens.bin'
rm -r A/out
nodes --set mesh.pipeline=2
expect_end 3 'rank 1 on ' 'token file tokens.bin'
[[ ! -e A/out && ! -e B/out ]] || fail "a refused start has written something"
rm B/tokens.bin
nodes
expect_end 3 'rank 1 on ' 'token file tokens.bin does not exist'
cp A/tokens.bin B

# Weights of the same shapes.
cd A
program train run.toml --set train.steps=1 --set run.export=end
expect_done
mv out/export weights
rm -r out
cp -r weights ../B
program train run.toml --set train.steps=2 --set run.export=end --set run.seed=5
expect_done
cd ..
cp A/out/export/model.safetensors .
cp model.safetensors B/weights
rm -r A/out
mv A/out.txt A/err.txt .
nodes --set model.from=weights
expect_end 4 'rank 1 on ' 'weight file weights/model.safetensors' 'the contents differ'
cp A/weights/* B/weights
nodes --set model.from=weights
expect_done

# evaluate compares the same files, and what ranks tokenize each for itself.
nodes_evaluate() {
  # shellcheck disable=SC2086  # several options in one variable
  launch $MPIEXEC $MPIEXEC_FLAGS -n 1 -wdir "$work/A" "$TRIREME" evaluate weights --seq-len 32 "$@" : \
    -n 1 -wdir "$work/B" "$TRIREME" evaluate weights --seq-len 32 "$@"
}
echo '{"context": "the ship", "endings": ["has", "is"], "label": 0}' | tee A/questions.jsonl >B/questions.jsonl
nodes_evaluate --data tokens.bin --choices questions.jsonl
expect_done
nodes_evaluate --data valid.bin
expect_end 3 'rank 1 on ' 'token file valid.bin' '1000 bytes here, 20000 bytes on rank 0'
echo '{"context": "the ship", "endings": ["has", "is", "sails"], "label": 0}' >>B/questions.jsonl
nodes_evaluate --choices questions.jsonl
expect_end 3 'rank 1 on ' 'file of choices questions.jsonl'
cp A/questions.jsonl B
cp model.safetensors B/weights
nodes_evaluate --data tokens.bin
expect_end 4 'rank 1 on ' 'weight file weights/model.safetensors' 'the contents differ'
cp A/weights/* B/weights
mkdir B/other && cp B/weights/tokenizer* B/other && rm B/weights/tokenizer*
python3 - <<'PY'
import json
vocabulary = {chr(97 + i): i for i in range(26)} | {" ": 26, "</s>": 27}
json.dump({"model": {"type": "BPE", "vocab": vocabulary, "merges": []}, "added_tokens": [{"id": 27, "content": "</s>", "special": True}]},
          open("B/weights/tokenizer.json", "w"))
json.dump({"eos_token": "</s>"}, open("B/weights/tokenizer_config.json", "w"))
PY
nodes_evaluate --choices questions.jsonl
expect_end 2 'The ranks do not agree on the tokens of questions.jsonl'
rm B/weights/tokenizer*
mv B/other/* B/weights

# A file system that another rank does not see: a private mount on the directory.
mkdir -p "$work/shared"
if unshare -m true 2>/dev/null; then
  rm -r A/out
  # shellcheck disable=SC2086  # several options in one variable
  launch $MPIEXEC $MPIEXEC_FLAGS -n 1 -wdir "$work/A" "$TRIREME" train run.toml "${saves[@]}" --set run.output="$work/shared/out" : \
    -n 1 -wdir "$work/A" unshare -m sh -c "mount -t tmpfs none '$work/shared' && exec '$TRIREME' train run.toml ${saves[*]} --set run.output='$work/shared/out'"
  expect_end 8 'rank 1 on ' "checkpoint.directory $work/shared/out/checkpoints is not the one that rank 0 writes to"
  [[ -z $(find shared -name '.node-check*') ]] || fail "a file of the check is left"
else
  not_tried "a rank with a separate mount namespace"
fi
echo passed
