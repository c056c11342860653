// SPDX-License-Identifier: Apache-2.0
// OLMo 2 (OLMo team 2025): the output of each branch is normed instead of its input, and queries and keys over all
// heads. OLMo 3 (2025): three of four layers have a window, and only the others' RoPE is stretched.
#include "model/families.hpp"

namespace trireme::model {

using M = config::Model;

Architecture olmo2() {
  Architecture a = llama();
  a.name = a.model_type = "olmo2";
  a.models = "OLMo 2";
  a.class_name = "Olmo2ForCausalLM";
  a.decoder = {.pre_norm = false, .post_norm = true, .qk_norm = QkNorm::width};
  for (NameRow& row : a.names) {  // the same tensor as in Llama, after the branch
    if (row.role == Role::attention_norm)
      row = {Role::attention_post_norm, "model.layers.{}.post_attention_layernorm.weight"};
    else if (row.role == Role::mlp_norm)
      row = {Role::mlp_post_norm, "model.layers.{}.post_feedforward_layernorm.weight"};
  }
  std::erase_if(a.keys, [](const KeyRow& row) { return row.key == "mlp_bias"; });
  a.keys = with(a.keys, {{"rms_norm_eps", &M::norm_eps, 1e-5}});
  return a;
}

Architecture olmo3() {
  Architecture a = olmo2();
  a.name = a.model_type = "olmo3";
  a.models = "OLMo 3";
  a.class_name = "Olmo3ForCausalLM";
  a.decoder.local_rope = true;
  a.windows = Windows::layers;
  a.window_absent = 4096;
  a.full_every = 4;
  a.theta_absent = a.local_theta_absent = 5e5;
  return a;
}

}  // namespace trireme::model
