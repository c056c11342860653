// SPDX-License-Identifier: Apache-2.0
// Qwen2 and Qwen2.5 (Yang et al. 2024): biases of q, k and v. Qwen3 (Yang et al. 2025): norms of queries and keys
// instead.
#include "model/families.hpp"

namespace trireme::model {

using M = config::Model;

Architecture qwen2() {
  return {.name = "qwen2",
          .models = "Qwen2, Qwen2.5 and models of their shape (R1-Distill-Qwen)",
          .model_type = "qwen2",
          .class_name = "Qwen2ForCausalLM",
          .decoder = {.qkv_bias = true},
          .names = llama_names(),
          .keys = with(llama_keys(), {{"num_key_value_heads", &M::kv_heads}}),
          .windows = Windows::switched,
          .window_absent = 4096,
          .max_window_layers_absent = 28,
          .activation_key = "hidden_act",
          .activations = {"silu", "swish"},
          .dropout = {"attention_dropout"},
          .buffers = {".rotary_emb.inv_freq"}};
}

Architecture qwen3() {
  Architecture a = qwen2();
  a.name = a.model_type = "qwen3";
  a.models = "Qwen3 (dense)";
  a.class_name = "Qwen3ForCausalLM";
  a.decoder = {.qk_norm = QkNorm::head};
  a.keys = with(a.keys, {{"head_dim", &M::head_dim, 128}, {"attention_bias", &M::attention_bias, false}});
  return a;
}

}  // namespace trireme::model
