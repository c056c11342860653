// SPDX-License-Identifier: Apache-2.0
// StableLM 2 (Bellagente et al. 2024): Llama with LayerNorm and RoPE of a quarter of each head.
#include "model/families.hpp"

namespace trireme::model {

using M = config::Model;

Architecture stablelm() {
  Architecture a = llama();
  a.name = a.model_type = "stablelm";
  a.models = "StableLM 3B and 2 1.6B";
  a.class_name = "StableLmForCausalLM";
  a.decoder = {.norm = NormKind::layer};
  a.names.push_back({Role::attention_norm_bias, "model.layers.{}.input_layernorm.bias"});
  a.names.push_back({Role::mlp_norm_bias, "model.layers.{}.post_attention_layernorm.bias"});
  a.names.push_back({Role::final_norm_bias, "model.norm.bias"});
  a.keys = with(llama_keys(), {{"num_key_value_heads", &M::kv_heads, 32},
                               {"layer_norm_eps", &M::norm_eps, 1e-5},
                               {"partial_rotary_factor", &M::partial_rotary_factor, 0.25},
                               {"use_qkv_bias", &M::attention_bias, false}});
  std::erase_if(a.keys, [](const KeyRow& row) { return row.key == "rms_norm_eps" || row.key == "head_dim"; });
  a.o_bias_with_qkv = false;
  a.heads_span_hidden = true;
  a.fixed = {{"qk_layernorm", false, "norms of queries and keys"},
             {"use_parallel_residual", false, "attention and MLP side by side"}};
  a.dropout = {"attention_dropout", "hidden_dropout"};
  return a;
}

}  // namespace trireme::model
