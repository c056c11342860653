// SPDX-License-Identifier: Apache-2.0
// Qwen1.5-MoE and Qwen2-MoE (Qwen team 2024): Qwen2 with experts, and a shared expert, times the sigmoid of a
// separate product.
#include "model/families.hpp"

namespace trireme::model {

using M = config::Model;

Architecture qwen2_moe() {
  Architecture a = qwen2();
  a.name = a.model_type = "qwen2_moe";
  a.models = "Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B";
  a.class_name = "Qwen2MoeForCausalLM";
  a.decoder.experts = Experts{.shared = SharedExperts::gated};
  a.names =
      with_experts(a.names, "model.layers.{}.mlp.gate.weight", "model.layers.{}.mlp.experts.{}.gate_proj.weight",
                   "model.layers.{}.mlp.experts.{}.up_proj.weight", "model.layers.{}.mlp.experts.{}.down_proj.weight");
  a.names.insert(a.names.end(), {{Role::shared_weight, "model.layers.{}.mlp.shared_expert_gate.weight"},
                                 {Role::shared_gate, "model.layers.{}.mlp.shared_expert.gate_proj.weight"},
                                 {Role::shared_up, "model.layers.{}.mlp.shared_expert.up_proj.weight"},
                                 {Role::shared_down, "model.layers.{}.mlp.shared_expert.down_proj.weight"}});
  a.keys = with(a.keys, {{"num_key_value_heads", &M::kv_heads, 16},
                         {"moe_intermediate_size", &M::expert_size, 1408},
                         {"shared_expert_intermediate_size", &M::shared_size, 5632},
                         {"num_experts_per_tok", &M::experts_per_token, 4},
                         {"norm_topk_prob", &M::router_normalize, false}});
  a.keys.push_back({.key = "num_experts", .member = &M::experts, .absent = 60, .other_key = "num_local_experts"});
  a.lists_dense_layers = true;
  a.lists_windows = true;
  a.fixed = {{"output_router_logits", false, "the auxiliary loss over a batch"},
             {"qkv_bias", true, "attention without biases of q, k and v"}};
  a.dropout = {"attention_dropout", "router_aux_loss_coef"};
  return a;
}

}  // namespace trireme::model
