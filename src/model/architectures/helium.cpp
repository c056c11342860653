// SPDX-License-Identifier: Apache-2.0
// Helium 1 (Kyutai 2025): Llama whose RoPE turns neighbouring elements.
#include "model/families.hpp"

namespace trireme::model {

using M = config::Model;

Architecture helium() {
  Architecture a = llama();
  a.name = a.model_type = "helium";
  a.models = "Helium 1";
  a.class_name = "HeliumForCausalLM";
  a.decoder = {.adjacent_pairs = true};
  a.keys = with(a.keys, {{"num_key_value_heads", &M::kv_heads, 20},
                         {"head_dim", &M::head_dim, 128},
                         {"rms_norm_eps", &M::norm_eps, 1e-8}});
  a.theta_absent = 1e5;
  a.o_bias_with_qkv = false;
  a.heads_span_hidden = true;
  return a;
}

}  // namespace trireme::model
