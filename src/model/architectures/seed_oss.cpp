// SPDX-License-Identifier: Apache-2.0
// Seed-OSS (ByteDance 2025): Llama with biases of q, k and v.
#include "model/families.hpp"

namespace trireme::model {

using M = config::Model;

Architecture seed_oss() {
  Architecture a = llama();
  a.name = a.model_type = "seed_oss";
  a.models = "Seed-OSS 36B";
  a.class_name = "SeedOssForCausalLM";
  a.keys = with(a.keys, {{"num_key_value_heads", &M::kv_heads, 8},
                         {"head_dim", &M::head_dim, 128},
                         {"attention_bias", &M::attention_bias, true}});
  a.o_bias_with_qkv = false;
  a.fixed = {{"attention_out_bias", false, "a bias of o"}};
  a.dropout = {"attention_dropout", "residual_dropout"};
  a.published_with_dropout = true;
  return a;
}

}  // namespace trireme::model
