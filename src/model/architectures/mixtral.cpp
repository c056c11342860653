// SPDX-License-Identifier: Apache-2.0
// Mixtral (Jiang et al. 2024): Mistral with two experts for each token in place of the MLP.
#include "model/families.hpp"

namespace trireme::model {

using M = config::Model;

std::vector<NameRow> with_experts(std::vector<NameRow> names, std::string_view router, std::string_view gate,
                                  std::string_view up, std::string_view down) {
  names.insert(names.end(),
               {{Role::router, router}, {Role::expert_gate, gate}, {Role::expert_up, up}, {Role::expert_down, down}});
  return names;
}

Architecture mixtral() {
  Architecture a = mistral();
  a.name = a.model_type = "mixtral";
  a.models = "Mixtral 8x7B and 8x22B";
  a.class_name = "MixtralForCausalLM";
  a.decoder.experts = Experts{};
  a.names = with_experts(
      a.names, "model.layers.{}.block_sparse_moe.gate.weight", "model.layers.{}.block_sparse_moe.experts.{}.w1.weight",
      "model.layers.{}.block_sparse_moe.experts.{}.w3.weight", "model.layers.{}.block_sparse_moe.experts.{}.w2.weight");
  a.keys = with(a.keys, {{"num_key_value_heads", &M::kv_heads, 8},
                         {"rms_norm_eps", &M::norm_eps, 1e-5},
                         {"num_local_experts", &M::experts, 8},
                         {"num_experts_per_tok", &M::experts_per_token, 2}});
  a.window_absent = 0;
  a.theta_absent = 1e6;
  a.fixed = {{"output_router_logits", false, "the auxiliary loss over a batch"}};
  a.off = {{"router_jitter_noise", "random factors of the router's input"}};
  a.dropout = {"attention_dropout", "router_jitter_noise", "router_aux_loss_coef"};
  return a;
}

}  // namespace trireme::model
