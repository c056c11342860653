# SPDX-License-Identifier: Apache-2.0
#
# Gemma, OLMo 3, EXAONE 4, Seed-OSS, CWM, Granite, Phi-3, GLM-4, Helium, ERNIE 4.5, StableLM and StarCoder2 against
# transformers: see tests/checkpoint/load/families.sh.
# Caps are low and multipliers far from 1, so that none of them can be left out unnoticed.
# timeout: 1200
# labels: slow
source "$TRIREME_SOURCE/tests/checkpoint/load/families.sh"

cat >kinds.py <<'PYTHON'
from transformers import (CwmConfig, Ernie4_5Config, Exaone4Config, Gemma2Config, Gemma3TextConfig, GemmaConfig, Glm4Config,
                          GlmConfig, GraniteConfig, HeliumConfig, Olmo3Config, Phi3Config, SeedOssConfig, StableLmConfig,
                          Starcoder2Config)

sizes = dict(vocab_size=257, hidden_size=48, intermediate_size=80, num_hidden_layers=4, num_attention_heads=8,
             num_key_value_heads=2, head_dim=10, max_position_embeddings=64, rms_norm_eps=1e-3, pad_token_id=None,
             bos_token_id=None, eos_token_id=1)

def by_type(full, local):
    return dict(full_attention=full, sliding_attention=dict(rope_type="default", rope_theta=local))

linear = dict(rope_type="linear", rope_theta=5000.0, factor=3.0)
yarn = dict(rope_type="yarn", rope_theta=5000.0, factor=4.0, original_max_position_embeddings=16)
longrope = dict(rope_type="longrope", rope_theta=5000.0, short_factor=[1.5, 2.0, 2.5], long_factor=[2.0, 3.0, 5.0])
phi3 = dict(head_dim="leave out")
multipliers = dict(embedding_multiplier=3.0, residual_multiplier=0.6, attention_multiplier=0.2, logits_scaling=0.7)
kinds = {
    "gemma": (GemmaConfig, dict(tie_word_embeddings=True)),
    "gemma-untied": (GemmaConfig, dict(tie_word_embeddings=False, attention_bias=True)),
    "gemma2": (Gemma2Config, dict(tie_word_embeddings=True, sliding_window=9, query_pre_attn_scalar=7,
                                  attn_logit_softcapping=2.0, final_logit_softcapping=1.5)),
    "gemma2-uncapped": (Gemma2Config, dict(tie_word_embeddings=False, sliding_window=9, attn_logit_softcapping=None,
                                           final_logit_softcapping=None, attention_bias=True)),
    "gemma3": (Gemma3TextConfig, dict(tie_word_embeddings=True, sliding_window=7, query_pre_attn_scalar=12,
                                      layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2,
                                      num_hidden_layers=6, rope_parameters=by_type(linear, 300.0))),
    "gemma3-untied": (Gemma3TextConfig, dict(tie_word_embeddings=False, sliding_window=9, final_logit_softcapping=1.5,
                                             attention_bias=True)),
    "olmo3": (Olmo3Config, dict(sliding_window=7, rope_parameters=by_type(yarn, 300.0))),
    "olmo3-tied": (Olmo3Config, dict(sliding_window=5, tie_word_embeddings=True, attention_bias=True)),
    "exaone4": (Exaone4Config, dict(sliding_window=7, rope_parameters=linear)),
    "exaone4-full": (Exaone4Config, dict(sliding_window=None, layer_types=["full_attention"] * 4, tie_word_embeddings=True)),
    "seed_oss": (SeedOssConfig, dict(mlp_bias=True, rope_parameters=yarn)),
    "cwm": (CwmConfig, dict(bos_token_id=0, sliding_window=7, rope_parameters=dict(linear, rope_theta=700.0))),
    "cwm-full": (CwmConfig, dict(bos_token_id=0, sliding_window=7, layer_types=["full_attention"] * 4,
                                 rope_parameters=dict(rope_type="default", rope_theta=700.0))),
    "granite": (GraniteConfig, dict(multipliers, tie_word_embeddings=True)),
    "granite-biases": (GraniteConfig, dict(multipliers, attention_bias=True, mlp_bias=True)),
    "phi3-long": (Phi3Config, dict(phi3, original_max_position_embeddings=16, rope_parameters=longrope)),
    "phi3-short": (Phi3Config, dict(phi3, original_max_position_embeddings=40, rope_parameters=longrope,
                                    tie_word_embeddings=True)),
    "phi3-part": (Phi3Config, dict(phi3, sliding_window=9, partial_rotary_factor=0.7)),
    "glm": (GlmConfig, dict(head_dim=12, tie_word_embeddings=True)),
    "glm4": (Glm4Config, dict(head_dim=12)),
    "glm4-tied": (Glm4Config, dict(head_dim=10, partial_rotary_factor=0.8, attention_bias=False, tie_word_embeddings=True)),
    "helium": (HeliumConfig, dict(head_dim=6, attention_bias=True, mlp_bias=True)),
    "ernie4_5": (Ernie4_5Config, dict(tie_word_embeddings=True)),
    "stablelm": (StableLmConfig, dict(head_dim="leave out", rms_norm_eps="leave out", layer_norm_eps=1e-3, use_qkv_bias=True,
                                      partial_rotary_factor=0.7)),
    "starcoder2": (Starcoder2Config, dict(head_dim="leave out", rms_norm_eps="leave out", norm_epsilon=1e-3, sliding_window=9,
                                          bos_token_id=None, eos_token_id=1)),
    "starcoder2-untied": (Starcoder2Config, dict(head_dim="leave out", rms_norm_eps="leave out", tie_word_embeddings=False)),
}
PYTHON
hold_to_transformers gemma2 gemma3 olmo3 exaone4 granite phi3-long glm4 stablelm starcoder2
brief=1 hold_to_transformers gemma gemma-untied gemma2-uncapped gemma3-untied olmo3-tied exaone4-full seed_oss cwm cwm-full \
  granite-biases phi3-short phi3-part \
  glm glm4-tied helium ernie4_5 starcoder2-untied
