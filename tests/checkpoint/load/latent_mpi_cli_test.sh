# SPDX-License-Identifier: Apache-2.0
#
# Families with latent attention (DeepSeek-V3, GLM-4.7-Flash, Youtu) against transformers: see tests/checkpoint/load/families.sh. Norms have eps
# 1e-3, latents' 1e-6; mscale and mscale_all_dim differ, so that scores and RoPE have other factors each; values are
# narrower and wider than keys. Weights in fp8 blocks, some of them partial, are imported as fp8 value times scale (computed
# here: transformers 5.24 divides the rows otherwise).
# timeout: 1200
# labels: slow
source "$TRIREME_SOURCE/tests/checkpoint/load/families.sh"

cat >kinds.py <<'PYTHON'
import json
import os
import torch
from safetensors.torch import load_file, save_file
from transformers import DeepseekV3Config, Glm4MoeLiteConfig, YoutuConfig

sizes = dict(vocab_size=257, hidden_size=48, intermediate_size=40, num_hidden_layers=3, num_attention_heads=8,
             num_key_value_heads=8, max_position_embeddings=64, rms_norm_eps=1e-3, pad_token_id=None, bos_token_id=None,
             eos_token_id=1, q_lora_rank=20, kv_lora_rank=14, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=7)
yarn = dict(rope_type="yarn", rope_theta=300.0, factor=4.0, original_max_position_embeddings=16, mscale=0.7,
            mscale_all_dim=1.1, beta_fast=4.0, beta_slow=1.0)
plain = dict(rope_type="default", rope_theta=300.0)
experts = dict(moe_intermediate_size=24, n_routed_experts=6, num_experts_per_tok=3, n_shared_experts=2, n_group=3,
               topk_group=2, routed_scaling_factor=1.8, first_k_dense_replace=1)
kinds = {
    "deepseek_v3": (DeepseekV3Config, dict(experts, rope_parameters=yarn)),
    "deepseek_v3-plain": (DeepseekV3Config, dict(experts, q_lora_rank=None, v_head_dim=13, rope_interleave=False,
                                                 n_group=1, topk_group=1, norm_topk_prob=False, rope_parameters=plain)),
    "glm4_moe_lite": (Glm4MoeLiteConfig, dict(experts, first_k_dense_replace="leave out", v_head_dim=10, n_group=1,
                                              topk_group=1, mlp_layer_types=["dense", "dense", "sparse"],
                                              rope_parameters=plain)),
    "deepseek_v3-wide": (DeepseekV3Config, dict(experts, hidden_size=160, intermediate_size=300, kv_lora_rank=130,
                                                rope_parameters=plain)),
    "youtu": (YoutuConfig, dict(rope_parameters=plain)),
    "youtu-yarn": (YoutuConfig, dict(rope_parameters=yarn, tie_word_embeddings=False, q_lora_rank=None)),
}

def in_blocks(x):
    """x [R, C] as blocks of 128 x 128, zeros behind its last ones: [R / 128, 128, C / 128, 128]."""
    rows, columns = -(-x.shape[0] // 128), -(-x.shape[1] // 128)
    padded = torch.zeros(rows * 128, columns * 128)
    padded[:x.shape[0], :x.shape[1]] = x
    return padded.view(rows, 128, columns, 128)

def quantize(kind):
    """Writes KIND-fp8 as DeepSeek-V3 is published: matrices of layers but the router in e4m3, a scale for each block."""
    stored, values = {}, {}
    for name, value in load_file(kind + "/model.safetensors").items():
        if value.dim() != 2 or "layers" not in name or ".gate.weight" in name:
            stored[name] = values[name] = value
            continue
        blocks = in_blocks(value)
        scales = blocks.abs().amax((1, 3), keepdim=True) / 448
        words = (blocks / scales).to(torch.float8_e4m3fn)
        flat = lambda x: x.reshape(-1, x.shape[2] * 128)[:value.shape[0], :value.shape[1]].contiguous()
        stored[name], stored[name + "_scale_inv"] = flat(words), scales[:, 0, :, 0].contiguous()
        values[name] = flat(words.float() * scales)
    os.mkdir(kind + "-fp8")
    save_file(stored, kind + "-fp8/model.safetensors")
    save_file(values, kind + "-values.safetensors")
    config = json.load(open(kind + "/config.json"))
    config["quantization_config"] = dict(quant_method="fp8", fmt="e4m3", weight_block_size=[128, 128], activation_scheme="dynamic")
    json.dump(config, open(kind + "-fp8/config.json", "w"))

def compare(kind):
    exported, values = load_file(kind + "-fp8-exported/model.safetensors"), load_file(kind + "-values.safetensors")
    assert exported.keys() == values.keys(), exported.keys() ^ values.keys()
    for name, value in values.items():
        assert torch.equal(exported[name], value), name
    assert "quantization_config" not in json.load(open(kind + "-fp8-exported/config.json"))
PYTHON
hold_to_transformers deepseek_v3 youtu
brief=1 hold_to_transformers deepseek_v3-plain glm4_moe_lite youtu-yarn

ask make deepseek_v3-wide
ask quantize deepseek_v3-wide
on 1 import deepseek_v3-wide-fp8 -o wide.checkpoint
on 1 export wide.checkpoint -o deepseek_v3-wide-fp8-exported --dtype fp32
run_all
ask compare deepseek_v3-wide
