// SPDX-License-Identifier: Apache-2.0
// OLMoE (Muennighoff et al. 2024): queries and keys are normed over all heads, branches as in Llama.
#include "model/families.hpp"

namespace trireme::model {

using M = config::Model;

Architecture olmoe() {
  Architecture a = llama();
  a.name = a.model_type = "olmoe";
  a.models = "OLMoE 1B-7B";
  a.class_name = "OlmoeForCausalLM";
  a.decoder = {.qk_norm = QkNorm::width, .experts = Experts{}};
  a.names =
      with_experts(a.names, "model.layers.{}.mlp.gate.weight", "model.layers.{}.mlp.experts.{}.gate_proj.weight",
                   "model.layers.{}.mlp.experts.{}.up_proj.weight", "model.layers.{}.mlp.experts.{}.down_proj.weight");
  std::erase_if(a.keys, [](const KeyRow& row) { return row.key == "mlp_bias" || row.key == "head_dim"; });
  a.keys = with(a.keys, {{"rms_norm_eps", &M::norm_eps, 1e-5},
                         {"num_experts_per_tok", &M::experts_per_token, 8},
                         {"norm_topk_prob", &M::router_normalize, false}});
  a.keys.push_back({.key = "num_experts", .member = &M::experts, .absent = 64, .other_key = "num_local_experts"});
  a.heads_span_hidden = true;
  a.fixed = {{"output_router_logits", false, "the auxiliary loss over a batch"}};
  a.off = {{"clip_qkv", "clipped queries, keys and values"}};
  a.dropout = {"attention_dropout", "router_aux_loss_coef"};
  return a;
}

}  // namespace trireme::model
