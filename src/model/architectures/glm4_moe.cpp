// SPDX-License-Identifier: Apache-2.0
// GLM-4.5 (GLM-4.5 team 2025): Llama's blocks with half-rotated heads and DeepSeek-V3's experts. dots.llm1 (Huo et al.
// 2025): Qwen3's blocks with them.
#include "model/families.hpp"

namespace trireme::model {

using M = config::Model;

void add_deepseek_experts(Architecture& a) {
  a.decoder.experts = Experts{.scores = RouterScores::sigmoid, .choice_bias = true, .shared = SharedExperts::plain};
  a.names =
      with_experts(a.names, "model.layers.{}.mlp.gate.weight", "model.layers.{}.mlp.experts.{}.gate_proj.weight",
                   "model.layers.{}.mlp.experts.{}.up_proj.weight", "model.layers.{}.mlp.experts.{}.down_proj.weight");
  a.names.insert(a.names.end(), {{Role::router_bias, "model.layers.{}.mlp.gate.e_score_correction_bias"},
                                 {Role::shared_gate, "model.layers.{}.mlp.shared_experts.gate_proj.weight"},
                                 {Role::shared_up, "model.layers.{}.mlp.shared_experts.up_proj.weight"},
                                 {Role::shared_down, "model.layers.{}.mlp.shared_experts.down_proj.weight"}});
  a.keys = with(a.keys, {{"routed_scaling_factor", &M::router_scale, 1.0},
                         {"n_group", &M::router_groups, 1},
                         {"topk_group", &M::router_groups_kept, 1}});
}

Architecture glm4_moe() {
  Architecture a = llama();
  a.name = a.model_type = "glm4_moe";
  a.models = "GLM-4.5, GLM-4.5-Air, GLM-4.6";
  a.class_name = "Glm4MoeForCausalLM";
  add_deepseek_experts(a);
  a.keys = with(a.keys, {{"num_key_value_heads", &M::kv_heads, 8},
                         {"head_dim", &M::head_dim, 128},
                         {"rms_norm_eps", &M::norm_eps, 1e-5},
                         {"partial_rotary_factor", &M::partial_rotary_factor, 0.5},
                         {"use_qk_norm", &M::qk_norm, false},
                         {"moe_intermediate_size", &M::expert_size, 1408},
                         {"num_experts_per_tok", &M::experts_per_token, 8},
                         {"norm_topk_prob", &M::router_normalize, true}});
  std::erase_if(a.keys, [](const KeyRow& row) { return row.key == "mlp_bias"; });
  a.keys.push_back({.key = "n_routed_experts", .member = &M::experts, .absent = 128, .other_key = "num_local_experts"});
  a.keys.push_back({.key = "n_shared_experts", .member = &M::shared_size, .absent = 1, .of_expert_sizes = true});
  a.keys.push_back({.key = "first_k_dense_replace", .member = &M::dense_layers, .absent = 1, .least = 0});
  a.o_bias_with_qkv = false;
  a.predicts_further = true;
  return a;
}

Architecture dots1() {
  Architecture a = qwen3();
  a.name = a.model_type = "dots1";
  a.models = "dots.llm1";
  a.class_name = "Dots1ForCausalLM";
  add_deepseek_experts(a);
  a.keys = with(a.keys, {{"num_key_value_heads", &M::kv_heads, 32},
                         {"head_dim", &M::head_dim, 0},
                         {"moe_intermediate_size", &M::expert_size, 1408},
                         {"num_experts_per_tok", &M::experts_per_token},
                         {"norm_topk_prob", &M::router_normalize, false}});
  a.keys.push_back({.key = "n_routed_experts", .member = &M::experts, .other_key = "num_local_experts"});
  a.keys.push_back({.key = "n_shared_experts", .member = &M::shared_size, .of_expert_sizes = true});
  a.keys.push_back({.key = "first_k_dense_replace", .member = &M::dense_layers, .absent = 0, .least = 0});
  a.windows = Windows::layers;
  a.max_window_layers_absent = 62;
  return a;
}

}  // namespace trireme::model
