// SPDX-License-Identifier: Apache-2.0
// Llama (Touvron et al. 2023).
#include <algorithm>

#include "model/families.hpp"

namespace trireme::model {

using M = config::Model;

std::vector<NameRow> llama_names() {
  return {{Role::embedding, "model.embed_tokens.weight"},
          {Role::attention_norm, "model.layers.{}.input_layernorm.weight"},
          {Role::q, "model.layers.{}.self_attn.q_proj.weight"},
          {Role::k, "model.layers.{}.self_attn.k_proj.weight"},
          {Role::v, "model.layers.{}.self_attn.v_proj.weight"},
          {Role::q_bias, "model.layers.{}.self_attn.q_proj.bias"},
          {Role::k_bias, "model.layers.{}.self_attn.k_proj.bias"},
          {Role::v_bias, "model.layers.{}.self_attn.v_proj.bias"},
          {Role::q_norm, "model.layers.{}.self_attn.q_norm.weight"},
          {Role::k_norm, "model.layers.{}.self_attn.k_norm.weight"},
          {Role::o, "model.layers.{}.self_attn.o_proj.weight"},
          {Role::o_bias, "model.layers.{}.self_attn.o_proj.bias"},
          {Role::mlp_norm, "model.layers.{}.post_attention_layernorm.weight"},
          {Role::gate, "model.layers.{}.mlp.gate_proj.weight"},
          {Role::up, "model.layers.{}.mlp.up_proj.weight"},
          {Role::gate_bias, "model.layers.{}.mlp.gate_proj.bias"},
          {Role::up_bias, "model.layers.{}.mlp.up_proj.bias"},
          {Role::down, "model.layers.{}.mlp.down_proj.weight"},
          {Role::down_bias, "model.layers.{}.mlp.down_proj.bias"},
          {Role::final_norm, "model.norm.weight"},
          {Role::head, "lm_head.weight"}};
}

std::vector<KeyRow> llama_keys() {
  return {{"vocab_size", &M::vocab_size},
          {"hidden_size", &M::hidden_size},
          {"intermediate_size", &M::intermediate_size},
          {"num_hidden_layers", &M::layers},
          {"num_attention_heads", &M::heads},
          {"num_key_value_heads", &M::kv_heads, 0},
          {"head_dim", &M::head_dim, 0},
          {"initializer_range", &M::init_std, 0.02},
          {"rms_norm_eps", &M::norm_eps, 1e-6},
          {"tie_word_embeddings", &M::tie_embeddings, false}};
}

std::vector<KeyRow> with(std::vector<KeyRow> keys, std::initializer_list<KeyRow> rows) {
  for (const KeyRow& row : rows) {
    const auto same = std::find_if(keys.begin(), keys.end(), [&](const KeyRow& k) { return k.key == row.key; });
    if (same == keys.end())
      keys.push_back(row);
    else
      *same = row;
  }
  return keys;
}

std::vector<NameRow> joined_in_files(std::vector<NameRow> names, std::initializer_list<Role> roles,
                                     std::string_view tensor) {
  for (NameRow& row : names)
    if (std::find(roles.begin(), roles.end(), row.role) != roles.end()) row.joint = tensor;
  return names;
}

Architecture llama() {
  return {
      .name = "llama",
      .models = "Llama 1 to 3 and models of their shape",
      .model_type = "llama",
      .class_name = "LlamaForCausalLM",
      .names = llama_names(),
      .keys = with(llama_keys(), {{"attention_bias", &M::attention_bias, false}, {"mlp_bias", &M::mlp_bias, false}}),
      .activation_key = "hidden_act",
      .activations = {"silu", "swish"},
      .dropout = {"attention_dropout"},
      .buffers = {".rotary_emb.inv_freq"}};
}

}  // namespace trireme::model
