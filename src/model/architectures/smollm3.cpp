// SPDX-License-Identifier: Apache-2.0
// SmolLM3 (Hugging Face 2025): Llama with RoPE in three of four layers.
#include "model/families.hpp"

namespace trireme::model {

using M = config::Model;

Architecture smollm3() {
  Architecture a = llama();
  a.name = a.model_type = "smollm3";
  a.models = "SmolLM3";
  a.class_name = "SmolLM3ForCausalLM";
  a.keys = with(a.keys, {{"num_key_value_heads", &M::kv_heads}, {"tie_word_embeddings", &M::tie_embeddings, true}});
  a.theta_absent = 2e6;
  a.skips_rope = true;
  return a;
}

}  // namespace trireme::model
