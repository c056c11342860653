// SPDX-License-Identifier: Apache-2.0
// Qwen3-MoE (Yang et al. 2025): Qwen3 with experts narrower than its MLP would be.
#include "model/families.hpp"

namespace trireme::model {

using M = config::Model;

Architecture qwen3_moe() {
  Architecture a = qwen3();
  a.name = a.model_type = "qwen3_moe";
  a.models = "Qwen3-30B-A3B, Qwen3-235B-A22B";
  a.class_name = "Qwen3MoeForCausalLM";
  a.decoder.experts = Experts{};
  a.names =
      with_experts(a.names, "model.layers.{}.mlp.gate.weight", "model.layers.{}.mlp.experts.{}.gate_proj.weight",
                   "model.layers.{}.mlp.experts.{}.up_proj.weight", "model.layers.{}.mlp.experts.{}.down_proj.weight");
  a.keys = with(a.keys, {{"num_key_value_heads", &M::kv_heads, 4},
                         {"head_dim", &M::head_dim, 0},
                         {"moe_intermediate_size", &M::expert_size, 768},
                         {"num_experts_per_tok", &M::experts_per_token, 8},
                         {"norm_topk_prob", &M::router_normalize, false}});
  a.keys.push_back({.key = "num_experts", .member = &M::experts, .absent = 128, .other_key = "num_local_experts"});
  a.windows = Windows::none;
  a.lists_dense_layers = true;
  a.fixed = {{"output_router_logits", false, "the auxiliary loss over a batch"}};
  a.dropout = {"attention_dropout", "router_aux_loss_coef"};
  return a;
}

}  // namespace trireme::model
