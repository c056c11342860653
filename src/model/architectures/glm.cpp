// SPDX-License-Identifier: Apache-2.0
// GLM-4 (GLM team 2024): RoPE rotates neighbouring elements, of half of each head; files hold gate and up in one
// tensor. The models of April 2025 (glm4) norm the outputs of branches as well.
#include "model/families.hpp"

namespace trireme::model {

using M = config::Model;

Architecture glm() {
  Architecture a = llama();
  a.name = a.model_type = "glm";
  a.models = "GLM-4 (2024)";
  a.class_name = "GlmForCausalLM";
  a.decoder = {.adjacent_pairs = true};
  a.names = joined_in_files(a.names, {Role::gate, Role::up}, "model.layers.{}.mlp.gate_up_proj.weight");
  a.keys = with(llama_keys(), {{"num_key_value_heads", &M::kv_heads, 2},
                               {"head_dim", &M::head_dim, 128},
                               {"rms_norm_eps", &M::norm_eps, 1.5625e-7},
                               {"partial_rotary_factor", &M::partial_rotary_factor, 0.5},
                               {"attention_bias", &M::attention_bias, true}});
  a.o_bias_with_qkv = false;
  return a;
}

Architecture glm4() {
  Architecture a = glm();
  a.name = a.model_type = "glm4";
  a.models = "GLM-4 (0414)";
  a.class_name = "Glm4ForCausalLM";
  a.decoder.post_norm = true;
  a.names.push_back({Role::attention_post_norm, "model.layers.{}.post_self_attn_layernorm.weight"});
  a.names.push_back({Role::mlp_post_norm, "model.layers.{}.post_mlp_layernorm.weight"});
  return a;
}

}  // namespace trireme::model
