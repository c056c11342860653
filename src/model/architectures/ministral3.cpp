// SPDX-License-Identifier: Apache-2.0
// Ministral 3 (Mistral AI 2025): Mistral with yarn, and queries that grow with their position.
#include "model/families.hpp"

namespace trireme::model {

using M = config::Model;

Architecture ministral3() {
  Architecture a = mistral();
  a.name = a.model_type = "ministral3";
  a.models = "Ministral 3 (text)";
  a.class_name = "Ministral3ForCausalLM";
  a.keys = with(a.keys, {{"num_key_value_heads", &M::kv_heads, 8},
                         {"head_dim", &M::head_dim, 128},
                         {"rms_norm_eps", &M::norm_eps, 1e-5}});
  a.window_absent = 0;
  a.scales_queries = a.rope_table_needed = true;
  return a;
}

}  // namespace trireme::model
