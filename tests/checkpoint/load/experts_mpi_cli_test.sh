# SPDX-License-Identifier: Apache-2.0
#
# Mixtral, Qwen3-MoE and OLMoE against transformers: see tests/checkpoint/load/families.sh. Routers are lively, so that
# tokens differ in their experts.
# timeout: 1200
# labels: slow
source "$TRIREME_SOURCE/tests/checkpoint/load/families.sh"

cat >kinds.py <<'PYTHON'
from transformers import MixtralConfig, OlmoeConfig, Qwen3MoeConfig

sizes = dict(vocab_size=257, hidden_size=48, intermediate_size=40, num_hidden_layers=3, num_attention_heads=8,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-3, pad_token_id=None, bos_token_id=None,
             eos_token_id=1, output_router_logits=False)
narrow = dict(moe_intermediate_size=24, head_dim=10)
kinds = {
    "mixtral": (MixtralConfig, dict(head_dim=10, num_local_experts=5, num_experts_per_tok=2)),
    "mixtral-window": (MixtralConfig, dict(head_dim=10, num_local_experts=3, num_experts_per_tok=1, sliding_window=9,
                                           tie_word_embeddings=True)),
    "qwen3_moe": (Qwen3MoeConfig, dict(narrow, num_experts=7, num_experts_per_tok=3, norm_topk_prob=True)),
    "qwen3_moe-dense": (Qwen3MoeConfig, dict(narrow, num_experts=4, num_experts_per_tok=4, norm_topk_prob=False,
                                             mlp_only_layers=[0], attention_bias=True, tie_word_embeddings=True)),
    "olmoe": (OlmoeConfig, dict(num_experts=6, num_experts_per_tok=2)),
}
PYTHON
hold_to_transformers mixtral qwen3_moe olmoe
brief=1 hold_to_transformers mixtral-window qwen3_moe-dense
