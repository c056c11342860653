# SPDX-License-Identifier: Apache-2.0
#
# Sourced by the tests of model families: `hold_to_transformers KIND...` holds random small models of transformers' classes,
# norms and biases random too, with sequences longer than their window and their original context, to Trireme. Logits to
# 1e-5, as written and as exported, on one rank and where 2 or 4 share the layers; the export has the same tensors bit for
# bit and loads without a missing or unexpected one; losses to 2e-6 and gradient norms to 1e-4 over 5 steps of training,
# against autograd, on 1, 3 and 4 ranks. The sourcing test writes kinds.py: `kinds`, a class of configuration and its
# keys for each kind, or the whole configuration of a multimodal model, of which the text part is held: then also
# `own_name`, the name of a tensor in a text model, and `finish`, which may rewrite what is saved. With brief=1 each kind
# trains on one mesh only, and gives logits as imported and on 2 ranks, unless TRIREME_TEST_ALL_MESHES is set.
#
# transformers takes seconds to start and `trireme` half of one on each rank, more than all of this computes: one process
# (peer.py) makes and judges all models of a test, and one per rank and number of ranks runs all command lines
# (tests/support/many_commands). `ask FUNCTION WORD...` calls a function of kinds.py in the former.
# shellcheck shell=bash
source "$TRIREME_SOURCE/tests/support/python.sh"
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

cat >peer.py <<'PYTHON'
"""Runs the commands of standard input, a function and its arguments per line, and prints "done" or "failed" for each.
make KIND...: models with lively weights, written by transformers into a directory each.
check MESHES KIND...: what `trireme` computed and wrote, on so many meshes, is what transformers computes and reads."""
import glob
import json
import sys
import traceback
import numpy
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

PROMPT = "Oars and sails, three banks of them."
STEPS, ROWS, T, LR = 5, 12, 32, 1e-3
EPS = 1e-5  # suppresses steps by gradients that are only rounding

def build(kind):
    if not isinstance(given.kinds[kind], tuple):
        return AutoModelForImageTextToText.from_config(given.kinds[kind])
    config_class, more = given.kinds[kind]
    keys = {key: value for key, value in dict(given.sizes, **more).items() if value != "leave out"}
    return AutoModelForCausalLM.from_config(config_class(**keys))

def make(*kinds):
    for kind in kinds:
        torch.manual_seed(7)
        model = build(kind)
        with torch.no_grad():
            for name, value in model.named_parameters():
                if ("norm" in name or ".ln_" in name) and name.endswith("weight"):
                    value.uniform_(0.5, 1.5)
                    if kind.startswith("gemma"):  # times 1 + w
                        value.sub_(1)
                else:
                    lively = any(part in name for part in ("q_proj", "k_proj", "qkv_proj", "q_b_proj", "c_attn", ".gate.weight"))
                    # Ministral 3 multiplies scores by 2 over these positions: rounding alone would move its curve.
                    value.normal_(0, (0.15 if kind.startswith("ministral3") else 0.25) if lively else 0.08)
            for name, value in model.named_buffers():
                if "correction_bias" in name:
                    value.normal_(0, 0.1)
        model.save_pretrained(kind)
        if hasattr(given, "finish"):
            given.finish(kind)

def load(directory):
    multimodal = "vision_config" in json.load(open(directory + "/config.json"))
    kind = AutoModelForImageTextToText if multimodal else AutoModelForCausalLM
    model, info = kind.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    assert not any(info.values()), (directory, info)
    return model.eval()  # there is no dropout, but Gemma 3's training mode requires token types of pictures

def check_logits(kind, meshes):
    tokens = torch.tensor([list(PROMPT.encode())])
    for directory in (kind, kind + "-exported"):
        with torch.no_grad():
            theirs = load(directory)(tokens).logits[0, -1].numpy()
        paths = sorted(glob.glob(kind + ".*.logits"))
        mixtures = ("olmoe", "mixtral", "qwen2_moe", "qwen3_moe", "glm4_moe", "dots1", "deepseek_v3")
        whole = 2 if kind.startswith(mixtures) else 4
        assert len(paths) == (whole if meshes == 4 else whole // 2), paths
        for path in paths:
            ours = numpy.fromfile(path, numpy.float32)
            off = numpy.abs(ours - theirs).max()
            print(f"{path}: logits up to {numpy.abs(theirs).max():.3g}, off by {off:.2g}")
            assert ours.shape == theirs.shape and off < 1e-5 and numpy.abs(theirs).max() > 0.1, (directory, path, off)

def check_weights(kind):
    before, after = (load_file(d + "/model.safetensors") for d in (kind, kind + "-exported"))
    if hasattr(given, "own_name"):
        before = {given.own_name(name): value for name, value in before.items() if given.own_name(name)}
    assert before.keys() == after.keys(), before.keys() ^ after.keys()
    for name, value in before.items():
        assert value.tobytes() == after[name].tobytes(), name

def curve(kind, nudge=0.0):
    """Losses and gradient norms of the same steps, the data in the order of the file. nudge: of all weights, up or down."""
    data = numpy.fromfile("tokens.bin", "<u2").astype(numpy.int64)
    model = load(kind)
    if nudge:
        torch.manual_seed(1)
        with torch.no_grad():
            for value in model.parameters():
                value.mul_(1 + nudge * torch.randn_like(value).sign())
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), eps=EPS, weight_decay=0.0)
    for step in range(STEPS):
        rows = [data[(step * ROWS + i) * T:][:T + 1] for i in range(ROWS)]
        batch = torch.tensor(numpy.stack(rows))
        logits = model(batch[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.size(-1)), batch[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
        optimizer.step()
        yield loss.item(), norm.item()

def apart(a, b):
    """How far apart two curves are at most: losses, norms."""
    return tuple(max(abs(x[i] / y[i] - 1) for x, y in zip(a, b)) for i in (0, 1))

def check_training(kind, meshes):
    theirs = list(curve(kind))
    loss, norm = apart(list(curve(kind, nudge=1.2e-7)), theirs)
    assert loss < 4e-7 and norm < 2e-5, (kind, "rounding alone moves the curve by a fifth of the tolerance", loss, norm)
    paths = sorted(glob.glob(f"train-{kind}-[0-9]-*/metrics.jsonl"))
    assert len(paths) == meshes, paths
    for path in paths:
        rows = [json.loads(line) for line in open(path)]
        ours = [(row["loss"], row["grad_norm"]) for row in rows if "loss" in row]
        assert len(ours) == STEPS, ours
        loss, norm = apart(ours, theirs)
        print(f"{path}: losses off by {loss:.2g}, norms by {norm:.2g}")
        assert loss < 2e-6 and norm < 1e-4, (path, ours, theirs)

def check(meshes, *kinds):
    for kind in kinds:
        check_logits(kind, int(meshes))
        check_weights(kind)
        check_training(kind, int(meshes))

def answer(name, *words):
    global given
    import kinds as given  # written by now
    (dict(make=make, check=check).get(name) or getattr(given, name))(*words)

sys.stdout = open("printed", "a", buffering=1)
for line in sys.stdin:
    try:
        answer(*line.split())
        print("done", file=sys.__stdout__, flush=True)
    except Exception:
        traceback.print_exc()
        print("failed", file=sys.__stdout__, flush=True)
PYTHON
prompt='Oars and sails, three banks of them.'


coproc peer { exec "$python" peer.py 2>peer.txt; }
# shellcheck disable=SC2154  # coproc makes it; copies, as it is gone when the process is
exec {to_peer}>&"${peer[1]}" {from_peer}<&"${peer[0]}"
ask() {
  local answer=none
  echo "$*" >&"$to_peer"
  read -r answer <&"$from_peer" || true
  [[ $answer == "done" ]] || { cp peer.txt err.txt; cp printed out.txt; fail "transformers answers \"$answer\" to: $*"; }
}

# on RANKS WORD...: a command line of `trireme` that run_all starts there, behind those of fewer ranks.
on() {
  local IFS=$'\t'
  echo "${*:2}" >>"commands-on-$1"
}

# run_all: writes the output to out-of-RANKS.txt and err-of-RANKS.txt.
run_all() {
  local ranks list
  for list in commands-on-*; do
    ranks=${list##*-}
    if ((ranks == 1)); then launch "$MANY_COMMANDS" "$list"; else
      # shellcheck disable=SC2086  # several options in one variable
      launch $MPIEXEC $MPIEXEC_FLAGS -n "$ranks" "$MANY_COMMANDS" "$list"
    fi
    expect_done
    cp out.txt "out-of-$ranks.txt"
    cp err.txt "err-of-$ranks.txt"
    rm "$list"
  done
}

hold_to_transformers() {
  local brief=${brief:-}
  [[ -z ${TRIREME_TEST_ALL_MESHES:-} ]] || brief=
  sed -e '/^\[model\]/,/^\[data\]/{/^\[/!d}' run.toml >from.toml
  local kind from ranks mesh tensor pipeline expert ranks_of_tensor meshes sources
  ask make "$@"
  for kind in "$@"; do
    sources=("$kind" "$kind.checkpoint")
    [[ -z ${brief:-} ]] || sources=("$kind.checkpoint")
    on 1 import "$kind" -o "$kind.checkpoint"
    on 1 export "$kind.checkpoint" -o "$kind-exported" --dtype fp32
    for from in "${sources[@]}"; do
      on 1 generate "$from" --tokenizer bytes --prompt "$prompt" --tokens 1 --logits "$kind.from-$from.logits"
    done
    ranks_of_tensor='2 4' meshes='1,1 3,1 4,4 4,2'
    case $kind in
      mixtral* | qwen[23]_moe* | olmoe* | glm4_moe* | dots1*) ranks_of_tensor='' meshes='1,1 3,1 2,1 4,1' ;;
      deepseek_v3*) ranks_of_tensor='' meshes='1,1 3,1,1,3 4,2,2 4,2,1,2' ;;  # with pipelines and divided experts
    esac
    [[ -z ${brief:-} ]] || ranks_of_tensor=${ranks_of_tensor% *} meshes=${meshes##* }
    for ranks in $ranks_of_tensor; do
      on "$ranks" generate "$kind-exported" --tokenizer bytes --prompt "$prompt" --tokens 1 --logits "$kind.on-$ranks.logits"
    done
    for mesh in $meshes; do
      IFS=, read -r ranks tensor pipeline expert <<<"$mesh"
      on "$ranks" train from.toml --set model.from="$kind" --set run.output="train-$kind-${mesh//,/-}" \
        --set mesh.tensor="$tensor" --set mesh.pipeline="${pipeline:-1}" --set mesh.expert="${expert:-1}" \
        --set batch.global=12 --set batch.micro=1 --set data.shuffle=false \
        --set data.seq_len=32 --set train.steps=5 --set metrics.every=1 --set optimizer.lr=1e-3 --set lr.schedule=constant \
        --set lr.warmup_steps=0 --set optimizer.weight_decay=0 --set optimizer.clip_norm=0 --set optimizer.beta2=0.95 \
        --set optimizer.eps=1e-5 \
        --set checkpoint.at_end=false
    done
  done
  run_all
  ask check "${brief:-4}" "$@"
  cat printed
  : >printed
}
