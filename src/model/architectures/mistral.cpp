// SPDX-License-Identifier: Apache-2.0
// Mistral 7B (Jiang et al. 2023) and its successors: Llama with a window of attention, which v0.2 and later have not.
#include "model/families.hpp"

namespace trireme::model {

using M = config::Model;

Architecture mistral() {
  return {.name = "mistral",
          .models = "Mistral 7B, Nemo and Small (text)",
          .model_type = "mistral",
          .class_name = "MistralForCausalLM",
          .names = llama_names(),
          .keys = with(llama_keys(), {{"num_key_value_heads", &M::kv_heads}}),
          .windows = Windows::all,
          .window_absent = 4096,
          .activation_key = "hidden_act",
          .activations = {"silu", "swish"},
          .dropout = {"attention_dropout"},
          .buffers = {".rotary_emb.inv_freq"}};
}

Architecture ministral() {
  Architecture a = mistral();
  a.name = a.model_type = "ministral";
  a.models = "Ministral 8B";
  a.class_name = "MinistralForCausalLM";
  a.windows = Windows::layers;
  return a;
}

}  // namespace trireme::model
