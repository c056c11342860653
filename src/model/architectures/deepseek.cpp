// SPDX-License-Identifier: Apache-2.0
// Families with multi-head latent attention. DeepSeek-V3 and R1 (DeepSeek-AI 2024), Moonlight and Kimi K2 (Moonshot AI
// 2025), GLM-4.7-Flash (Z.ai 2026): with experts; Youtu-LLM (Tencent 2025): dense.
#include <algorithm>

#include "model/families.hpp"

namespace trireme::model {

using M = config::Model;

namespace {

/// Llama's blocks with latent attention, whose sizes are these if keys are absent.
Architecture latent_family() {
  Architecture a = llama();
  a.decoder = {.latent = Latent{}};
  std::erase_if(a.names, [](const NameRow& row) {
    using enum Role;
    return row.role == k || row.role == v || row.role == q_norm || row.role == k_norm || row.role == q_bias ||
           row.role == k_bias || row.role == v_bias || row.role == o_bias;
  });
  a.names.insert(a.names.end(), {{Role::q_a, "model.layers.{}.self_attn.q_a_proj.weight"},
                                 {Role::q_a_norm, "model.layers.{}.self_attn.q_a_layernorm.weight"},
                                 {Role::q_b, "model.layers.{}.self_attn.q_b_proj.weight"},
                                 {Role::kv_a, "model.layers.{}.self_attn.kv_a_proj_with_mqa.weight"},
                                 {Role::kv_a_norm, "model.layers.{}.self_attn.kv_a_layernorm.weight"},
                                 {Role::kv_b, "model.layers.{}.self_attn.kv_b_proj.weight"}});
  a.keys = with(llama_keys(), {{"kv_lora_rank", &M::kv_rank, 512},
                               {"qk_nope_head_dim", &M::nope_dim, 128},
                               {"qk_rope_head_dim", &M::rope_dim, 64},
                               {"v_head_dim", &M::value_dim, 128},
                               {"rope_interleave", &M::rope_interleave, true}});
  std::erase_if(a.keys, [](const KeyRow& row) { return row.key == "head_dim"; });
  a.keys.push_back({.key = "q_lora_rank", .member = &M::q_rank, .absent = 1536, .null_is_zero = true});
  a.fixed = {{"attention_bias", false, "biases of the latents and of o"}};
  return a;
}

}  // namespace

Architecture deepseek_v3() {
  Architecture a = latent_family();
  a.name = a.model_type = "deepseek_v3";
  a.models = "DeepSeek-V3, Kimi K2";
  a.other_types = {"kimi_k2"};
  a.class_name = "DeepseekV3ForCausalLM";
  add_deepseek_experts(a);
  a.keys = with(a.keys, {{"moe_intermediate_size", &M::expert_size, 2048},
                         {"num_experts_per_tok", &M::experts_per_token, 8},
                         {"norm_topk_prob", &M::router_normalize, true},
                         {"routed_scaling_factor", &M::router_scale, 2.5},
                         {"n_group", &M::router_groups, 8},
                         {"topk_group", &M::router_groups_kept, 4}});
  a.keys.push_back({.key = "n_routed_experts", .member = &M::experts, .absent = 256, .other_key = "num_local_experts"});
  a.keys.push_back({.key = "n_shared_experts", .member = &M::shared_size, .absent = 1, .of_expert_sizes = true});
  a.keys.push_back({.key = "first_k_dense_replace", .member = &M::dense_layers, .absent = 3, .least = 0});
  a.only = {{"scoring_func", "sigmoid"}, {"topk_method", "noaux_tc"}};
  a.ones = {"moe_layer_freq"};
  a.predicts_further = true;
  return a;
}

Architecture glm4_moe_lite() {
  Architecture a = deepseek_v3();
  a.name = a.model_type = "glm4_moe_lite";
  a.models = "GLM-4.7-Flash";
  a.other_types = {};
  a.class_name = "Glm4MoeLiteForCausalLM";
  a.keys = with(a.keys, {{"qk_nope_head_dim", &M::nope_dim, 192},
                         {"v_head_dim", &M::value_dim, 256},
                         {"rms_norm_eps", &M::norm_eps, 1e-5},
                         {"moe_intermediate_size", &M::expert_size, 1536},
                         {"num_experts_per_tok", &M::experts_per_token, 4},
                         {"routed_scaling_factor", &M::router_scale, 1.8},
                         {"n_group", &M::router_groups, 1},
                         {"topk_group", &M::router_groups_kept, 1}});
  std::erase_if(a.keys, [](const KeyRow& row) { return row.key == "first_k_dense_replace"; });
  for (KeyRow& row : a.keys) {
    if (row.key == "q_lora_rank") row.absent = 768;
    if (row.key == "n_routed_experts") row.absent = 64;
  }
  a.lists_mlp_types = true;
  return a;
}

Architecture youtu() {
  Architecture a = latent_family();
  a.name = a.model_type = "youtu";
  a.models = "Youtu-LLM 2B";
  a.class_name = "YoutuForCausalLM";
  a.keys = with(a.keys, {{"tie_word_embeddings", &M::tie_embeddings, true}});
  return a;
}

}  // namespace trireme::model
