# SPDX-License-Identifier: Apache-2.0
#
# Mixtral, Qwen3-MoE, OLMoE, GLM-4-MoE, dots1 and Qwen2-MoE against transformers: see tests/checkpoint/load/families.sh. Routers are lively, so that
# tokens differ in their experts.
# timeout: 1200
# labels: slow
source "$TRIREME_SOURCE/tests/checkpoint/load/families.sh"

cat >kinds.py <<'PYTHON'
from transformers import Dots1Config, Glm4MoeConfig, MixtralConfig, OlmoeConfig, Qwen2MoeConfig, Qwen3MoeConfig

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
    "glm4_moe": (Glm4MoeConfig, dict(narrow, head_dim=12, n_routed_experts=6, num_experts_per_tok=3, n_shared_experts=2,
                                     n_group=3, topk_group=2, routed_scaling_factor=1.8, use_qk_norm=True,
                                     attention_bias=True)),
    "dots1": (Dots1Config, dict(narrow, n_routed_experts=5, num_experts_per_tok=2, n_shared_experts=1,
                                first_k_dense_replace=0, norm_topk_prob=True, max_window_layers=1, sliding_window=9)),
    "qwen2_moe": (Qwen2MoeConfig, dict(moe_intermediate_size=24, shared_expert_intermediate_size=28, num_experts=6,
                                       num_experts_per_tok=2)),
    "olmoe": (OlmoeConfig, dict(num_experts=6, num_experts_per_tok=2)),
}
PYTHON
hold_to_transformers mixtral qwen3_moe olmoe glm4_moe
brief=1 hold_to_transformers mixtral-window qwen3_moe-dense dots1 qwen2_moe
