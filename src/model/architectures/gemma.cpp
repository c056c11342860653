// SPDX-License-Identifier: Apache-2.0
// Gemma (Gemma team 2024): norms times (1 + w), GeGLU, the embedding times sqrt(hidden). Gemma 2 (2024) norms the
// outputs of branches as well, caps scores and logits, and has windows in every other layer. Gemma 3 (2025) norms
// queries and keys instead of the caps, and layers with a window have another RoPE base.
#include "model/families.hpp"

namespace trireme::model {

using M = config::Model;

Architecture gemma() {
  Architecture a = llama();
  a.name = a.model_type = "gemma";
  a.models = "Gemma 1";
  a.class_name = "GemmaForCausalLM";
  a.decoder = {.norm = NormKind::rms_plus_one, .activation = Activation::geglu_tanh, .embedding_root = true};
  std::erase_if(a.keys, [](const KeyRow& row) { return row.key == "mlp_bias"; });
  a.keys = with(a.keys, {{"num_key_value_heads", &M::kv_heads, 16},
                         {"head_dim", &M::head_dim, 256},
                         {"tie_word_embeddings", &M::tie_embeddings, true}});
  a.activations = {"gelu_pytorch_tanh", "gelu"};  // transformers takes the first for the second
  a.fixed = {{"use_bidirectional_attention", false, "attention to later tokens"}};
  return a;
}

Architecture gemma2() {
  Architecture a = gemma();
  a.name = a.model_type = "gemma2";
  a.models = "Gemma 2";
  a.class_name = "Gemma2ForCausalLM";
  a.decoder.post_norm = true;
  for (NameRow& row : a.names)  // Llama's name is used for the norm after attention here
    if (row.role == Role::mlp_norm) row.tensor = "model.layers.{}.pre_feedforward_layernorm.weight";
  a.names.push_back({Role::attention_post_norm, "model.layers.{}.post_attention_layernorm.weight"});
  a.names.push_back({Role::mlp_post_norm, "model.layers.{}.post_feedforward_layernorm.weight"});
  a.keys = with(
      a.keys,
      {{"num_key_value_heads", &M::kv_heads, 4},
       {"query_pre_attn_scalar", &M::query_pre_attn_scalar, 256},
       {.key = "attn_logit_softcapping", .member = &M::attn_logit_softcapping, .absent = 50, .null_is_zero = true},
       {.key = "final_logit_softcapping", .member = &M::final_logit_softcapping, .absent = 30, .null_is_zero = true}});
  a.activation_key = "hidden_activation";
  a.activations = {"gelu_pytorch_tanh"};
  a.windows = Windows::layers;
  a.window_absent = 4096;
  a.full_every = 2;
  return a;
}

Architecture gemma3() {
  Architecture a = gemma2();
  a.name = "gemma3";
  a.model_type = "gemma3_text";
  a.models = "Gemma 3 (text)";
  a.class_name = "Gemma3ForCausalLM";
  a.decoder.qk_norm = QkNorm::head;
  a.decoder.local_rope = true;
  std::erase_if(a.keys, [](const KeyRow& row) { return row.key == "attn_logit_softcapping"; });  // read, not applied
  a.keys = with(
      a.keys,
      {{.key = "final_logit_softcapping", .member = &M::final_logit_softcapping, .absent = 0, .null_is_zero = true}});
  a.theta_absent = 1e6;
  a.local_theta_absent = 1e4;
  a.local_theta_key = "rope_local_base_freq";
  a.full_every = 6;
  a.full_every_key = "sliding_window_pattern";
  return a;
}

}  // namespace trireme::model
