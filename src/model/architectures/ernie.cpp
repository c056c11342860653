// SPDX-License-Identifier: Apache-2.0
// ERNIE 4.5 (Baidu 2025), its dense model: Llama whose RoPE turns neighbouring elements.
#include "model/families.hpp"

namespace trireme::model {

using M = config::Model;

Architecture ernie4_5() {
  Architecture a = llama();
  a.name = a.model_type = "ernie4_5";
  a.models = "ERNIE 4.5 0.3B (dense)";
  a.class_name = "Ernie4_5ForCausalLM";
  a.decoder = {.adjacent_pairs = true};
  a.keys = with(llama_keys(), {{"num_key_value_heads", &M::kv_heads, 2},
                               {"head_dim", &M::head_dim, 128},
                               {"rms_norm_eps", &M::norm_eps, 1e-5},
                               {"tie_word_embeddings", &M::tie_embeddings, true}});
  a.theta_absent = 5e5;
  a.fixed = {{"use_bias", false, "biases"}};
  a.dropout = {};
  return a;
}

}  // namespace trireme::model
