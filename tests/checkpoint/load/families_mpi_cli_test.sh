# SPDX-License-Identifier: Apache-2.0
#
# Every model family against transformers: a random small model of its class, norms and biases random too, with sequences
# longer than its window and its original context. Logits to 1e-5, as written and as exported, on one rank and where 2 or 4
# share the layers; the export has the same tensors bit for bit and loads without a missing or unexpected one; losses to
# 2e-6 and gradient norms to 1e-4 over 5 steps of training, against autograd, on 1, 3 and 4 ranks.
# timeout: 900
# labels: slow
source "$TRIREME_SOURCE/tests/support/python.sh"
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

cat >make.py <<'PYTHON'
"""make.py KIND...: models with lively weights, written by transformers into a directory each."""
import sys
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MinistralConfig, MistralConfig, Olmo2Config, Qwen2Config, Qwen3Config, SmolLM3Config

sizes = dict(vocab_size=257, hidden_size=48, intermediate_size=80, num_hidden_layers=4, num_attention_heads=8,
             num_key_value_heads=2, head_dim=10, max_position_embeddings=64, rms_norm_eps=1e-3)
yarn = dict(rope_type="yarn", rope_theta=5000.0, factor=4.0, original_max_position_embeddings=16)
linear = dict(rope_type="linear", rope_theta=5000.0, factor=3.0)
kinds = {
    "llama-biases": (LlamaConfig, dict(attention_bias=True, mlp_bias=True, rope_parameters=linear)),
    "mistral": (MistralConfig, dict(sliding_window=None, rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    "mistral-window": (MistralConfig, dict(sliding_window=9)),
    "ministral": (MinistralConfig, dict(sliding_window=7, tie_word_embeddings=True,
                                        layer_types=["sliding_attention", "full_attention"] * 2)),
    "qwen2": (Qwen2Config, dict(rope_parameters=yarn)),
    "qwen2-window": (Qwen2Config, dict(tie_word_embeddings=True, use_sliding_window=True, sliding_window=11,
                                       max_window_layers=1)),
    "qwen3": (Qwen3Config, dict(tie_word_embeddings=True)),
    "olmo2": (Olmo2Config, dict(attention_bias=True)),
    "olmo2-tied": (Olmo2Config, dict(tie_word_embeddings=True, rope_parameters=yarn)),
    "smollm3": (SmolLM3Config, dict(tie_word_embeddings=True, no_rope_layer_interval=2, attention_bias=True, mlp_bias=True,
                                    pad_token_id=None, bos_token_id=None, eos_token_id=None)),
    "qwen3-biases": (Qwen3Config, dict(attention_bias=True, rope_parameters=dict(yarn, attention_factor=0.9))),
}
for kind in sys.argv[1:]:
    torch.manual_seed(7)
    config_class, more = kinds[kind]
    model = AutoModelForCausalLM.from_config(config_class(**sizes, **more))
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "norm" in name and name.endswith("weight"):
                value.uniform_(0.5, 1.5)
            else:
                value.normal_(0, 0.25 if "q_proj" in name or "k_proj" in name else 0.08)
    model.save_pretrained(kind)
PYTHON
cat >check.py <<'PYTHON'
"""check.py PROMPT KIND...: what `trireme` computed and wrote is what transformers computes and reads."""
import glob
import json
import sys
import numpy
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM

STEPS, ROWS, T, LR = 5, 12, 32, 1e-3

def load(directory):
    model, info = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager",
                                                       output_loading_info=True)
    assert not any(info.values()), (directory, info)
    return model

def check_logits(kind, tokens):
    for directory in (kind, kind + "-exported"):
        with torch.no_grad():
            theirs = load(directory)(tokens).logits[0, -1].numpy()
        paths = sorted(glob.glob(kind + ".*.logits"))
        assert len(paths) == (2 if kind.startswith("olmo2") else 4), paths
        for path in paths:
            ours = numpy.fromfile(path, numpy.float32)
            off = numpy.abs(ours - theirs).max()
            print(f"{path}: logits up to {numpy.abs(theirs).max():.3g}, off by {off:.2g}")
            assert ours.shape == theirs.shape and off < 1e-5 and numpy.abs(theirs).max() > 0.1, (directory, path, off)

def check_weights(kind):
    before, after = (load_file(d + "/model.safetensors") for d in (kind, kind + "-exported"))
    assert before.keys() == after.keys(), before.keys() ^ after.keys()
    for name, value in before.items():
        assert value.tobytes() == after[name].tobytes(), name

def curve(kind):
    """Losses and gradient norms of the same steps, the data in the order of the file."""
    data = numpy.fromfile("tokens.bin", "<u2").astype(numpy.int64)
    model = load(kind)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
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

def check_training(kind):
    theirs = list(curve(kind))
    paths = sorted(glob.glob(f"train-{kind}-[0-9]-[0-9]/metrics.jsonl"))
    assert len(paths) == 4, paths
    for path in paths:
        rows = [json.loads(line) for line in open(path)]
        ours = [(row["loss"], row["grad_norm"]) for row in rows if "loss" in row]
        assert len(ours) == STEPS, ours
        loss = max(abs(a[0] / b[0] - 1) for a, b in zip(ours, theirs))
        norm = max(abs(a[1] / b[1] - 1) for a, b in zip(ours, theirs))
        print(f"{path}: losses off by {loss:.2g}, norms by {norm:.2g}")
        assert loss < 2e-6 and norm < 1e-4, (path, ours, theirs)

for kind in sys.argv[2:]:
    check_logits(kind, torch.tensor([list(sys.argv[1].encode())]))
    check_weights(kind)
    check_training(kind)
PYTHON
prompt='Oars and sails, three banks of them.'
kinds='llama-biases mistral mistral-window ministral qwen2 qwen2-window qwen3 qwen3-biases olmo2 olmo2-tied smollm3'
program models
expect_done
for name in llama mistral ministral qwen2 qwen3 olmo2 smollm3 gpt2; do grep -q "^$name " out.txt || fail "models does not list $name"; done
# shellcheck disable=SC2086  # several words in one variable
"$python" make.py $kinds 2>err.txt || fail 'transformers writes no models'
sed -e '/^\[model\]/,/^\[data\]/{/^\[/!d}' run.toml >from.toml
for kind in $kinds; do
  "$TRIREME" import "$kind" -o "$kind.checkpoint" >/dev/null
  "$TRIREME" export "$kind.checkpoint" -o "$kind-exported" --dtype fp32 >/dev/null
  for from in "$kind" "$kind.checkpoint"; do
    program generate "$from" --tokenizer bytes --prompt "$prompt" --tokens 1 --logits "$kind.from-$from.logits"
    expect_done
  done
  if [[ $kind == olmo2* ]]; then  # its norms span what tensor parallelism splits
    ranks_of_tensor='' meshes='1,1 3,1 4,1 2,1'
    job 2 generate "$kind" --tokenizer bytes --prompt "$prompt" --tokens 1
    expect_end 2 'mesh.tensor = 2' 'model.architecture = "olmo2"' 'set mesh.tensor = 1'
  else
    ranks_of_tensor='2 4' meshes='1,1 3,1 4,2 4,4'
  fi
  for ranks in $ranks_of_tensor; do
    job "$ranks" generate "$kind-exported" --tokenizer bytes --prompt "$prompt" --tokens 1 --logits "$kind.on-$ranks.logits"
    expect_done
  done
  for mesh in $meshes; do
    job "${mesh%,*}" train from.toml --set model.from="$kind" --set run.output="train-$kind-${mesh/,/-}" \
      --set mesh.tensor="${mesh#*,}" --set batch.global=12 --set batch.micro=1 --set data.shuffle=false \
      --set data.seq_len=32 --set train.steps=5 --set metrics.every=1 --set optimizer.lr=1e-3 --set lr.schedule=constant \
      --set lr.warmup_steps=0 --set optimizer.weight_decay=0 --set optimizer.clip_norm=0 --set optimizer.beta2=0.95 \
      --set checkpoint.at_end=false
    expect_done
  done
done
# shellcheck disable=SC2086
"$python" check.py "$prompt" $kinds >said 2>err.txt || { cat said; fail 'another model than transformers has'; }
cat said
