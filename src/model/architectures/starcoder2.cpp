// SPDX-License-Identifier: Apache-2.0
// StarCoder2 (Lozhkov et al. 2024): Mistral with LayerNorm, biases, and an MLP of two matrices with GELU in its tanh
// form.
#include "model/families.hpp"

namespace trireme::model {

using M = config::Model;

Architecture starcoder2() {
  Architecture a = mistral();
  a.name = a.model_type = "starcoder2";
  a.models = "StarCoder2 3B, 7B and 15B";
  a.class_name = "Starcoder2ForCausalLM";
  a.decoder = {
      .norm = NormKind::layer, .activation = Activation::gelu_tanh, .qkv_bias = true, .o_bias = true, .mlp_bias = true};
  const auto rename = [&](Role role, std::string_view tensor) {
    for (NameRow& row : a.names)
      if (row.role == role) row.tensor = tensor;
  };
  rename(Role::up, "model.layers.{}.mlp.c_fc.weight");
  rename(Role::up_bias, "model.layers.{}.mlp.c_fc.bias");
  rename(Role::down, "model.layers.{}.mlp.c_proj.weight");
  rename(Role::down_bias, "model.layers.{}.mlp.c_proj.bias");
  std::erase_if(a.names, [](const NameRow& row) { return row.role == Role::gate || row.role == Role::gate_bias; });
  a.names.push_back({Role::attention_norm_bias, "model.layers.{}.input_layernorm.bias"});
  a.names.push_back({Role::mlp_norm_bias, "model.layers.{}.post_attention_layernorm.bias"});
  a.names.push_back({Role::final_norm_bias, "model.norm.bias"});
  a.keys = with(llama_keys(), {{"intermediate_size", &M::intermediate_size, 12288},
                               {"num_key_value_heads", &M::kv_heads, 2},
                               {"initializer_range", &M::init_std, 0.018042},
                               {"norm_epsilon", &M::norm_eps, 1e-5},
                               {"tie_word_embeddings", &M::tie_embeddings, true}});
  std::erase_if(a.keys, [](const KeyRow& row) { return row.key == "rms_norm_eps" || row.key == "head_dim"; });
  a.heads_span_hidden = true;
  a.window_absent = 0;
  a.activations = {"gelu_pytorch_tanh", "gelu_new"};
  a.fixed = {{"use_bias", true, "linear layers without biases"}};
  a.dropout = {"attention_dropout", "residual_dropout", "embedding_dropout"};
  return a;
}

}  // namespace trireme::model
