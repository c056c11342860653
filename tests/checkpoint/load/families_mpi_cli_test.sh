# SPDX-License-Identifier: Apache-2.0
#
# Llama, GPT-2, Mistral and Ministral, Qwen, OLMo 2 and SmolLM3 against transformers: see tests/checkpoint/load/families.sh.
# timeout: 900
# labels: slow
source "$TRIREME_SOURCE/tests/checkpoint/load/families.sh"

program models
expect_done
for name in llama mistral ministral ministral3 qwen2 qwen3 gemma gemma2 gemma3 olmo2 olmo3 exaone4 smollm3 seed_oss cwm granite phi3 glm glm4 \
  helium ernie4_5 stablelm starcoder2 gpt2; do
  grep -q "^$name " out.txt || fail "models does not list $name"
done
cat >kinds.py <<'PYTHON'
from transformers import (GPT2Config, LlamaConfig, Ministral3Config, MinistralConfig, MistralConfig, Olmo2Config, Qwen2Config,
                          Qwen3Config, SmolLM3Config)

sizes = dict(vocab_size=257, hidden_size=48, intermediate_size=80, num_hidden_layers=4, num_attention_heads=8,
             num_key_value_heads=2, head_dim=10, max_position_embeddings=64, rms_norm_eps=1e-3)
yarn = dict(rope_type="yarn", rope_theta=5000.0, factor=4.0, original_max_position_embeddings=16)
gpt2 = dict(n_embd=48, n_layer=3, n_head=8, n_inner=80, n_positions=64,
            **dict.fromkeys([key for key in sizes if key != "vocab_size"], "leave out"))
llama3 = dict(rope_type="llama3", rope_theta=5000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
linear = dict(rope_type="linear", rope_theta=5000.0, factor=3.0)
beyond = dict(yarn, original_max_position_embeddings=9, llama_4_scaling_beta=0.4, mscale=0.7, mscale_all_dim=1.1)
kinds = {
    "gpt2": (GPT2Config, dict(gpt2, tie_word_embeddings=True)),
    "gpt2-untied": (GPT2Config, dict(gpt2, tie_word_embeddings=False)),
    "llama": (LlamaConfig, dict()),
    "llama-tied": (LlamaConfig, dict(tie_word_embeddings=True)),
    "llama-scaled": (LlamaConfig, dict(rope_parameters=llama3, num_hidden_layers=3)),
    "llama-biases": (LlamaConfig, dict(attention_bias=True, mlp_bias=True, rope_parameters=linear)),
    "mistral": (MistralConfig, dict(sliding_window=None, rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    "mistral-window": (MistralConfig, dict(sliding_window=9)),
    "ministral": (MinistralConfig, dict(sliding_window=7, tie_word_embeddings=True,
                                        layer_types=["sliding_attention", "full_attention"] * 2)),
    "ministral3": (Ministral3Config, dict(rope_parameters=beyond, bos_token_id=None, eos_token_id=1)),
    "ministral3-tied": (Ministral3Config, dict(rope_parameters=dict(beyond, mscale_all_dim=0.0), tie_word_embeddings=True,
                                               sliding_window=11, bos_token_id=None, eos_token_id=1)),
    "llama-dynamic": (LlamaConfig, dict(max_position_embeddings=13, rope_parameters=dict(linear, rope_type="dynamic"))),
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
PYTHON
hold_to_transformers gpt2 llama-biases mistral-window ministral3 qwen2 qwen3 olmo2 smollm3
brief=1 hold_to_transformers gpt2-untied llama llama-tied llama-scaled llama-dynamic mistral ministral ministral3-tied qwen2-window qwen3-biases olmo2-tied
