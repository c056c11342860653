// SPDX-License-Identifier: Apache-2.0
// CWM (Code World Model, Meta 2025): Llama 3 with a window in three of four layers.
#include "model/families.hpp"

namespace trireme::model {

using M = config::Model;

Architecture cwm() {
  Architecture a = llama();
  a.name = a.model_type = "cwm";
  a.models = "CWM";
  a.class_name = "CwmForCausalLM";
  std::erase_if(a.keys, [](const KeyRow& row) { return row.key == "attention_bias"; });
  a.keys = with(a.keys, {{"num_key_value_heads", &M::kv_heads, 8},
                         {"head_dim", &M::head_dim, 128},
                         {"rms_norm_eps", &M::norm_eps, 1e-5}});
  a.windows = Windows::layers;
  a.window_absent = 8192;
  a.full_every = 4;
  a.full_first = a.refuses_null = true;
  a.theta_absent = 1e6;
  a.rope_table_needed = true;
  return a;
}

}  // namespace trireme::model
