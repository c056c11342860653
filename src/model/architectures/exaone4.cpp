// SPDX-License-Identifier: Apache-2.0
// EXAONE 4 (LG AI Research 2025): the output of each branch is normed instead of its input, queries and keys by head;
// three of four layers have a window, and only these have RoPE.
#include "model/families.hpp"

namespace trireme::model {

using M = config::Model;

Architecture exaone4() {
  Architecture a = olmo2();  // the names of tensors
  a.name = a.model_type = "exaone4";
  a.models = "EXAONE 4";
  a.class_name = "Exaone4ForCausalLM";
  a.decoder.qk_norm = QkNorm::head;
  std::erase_if(a.keys, [](const KeyRow& row) { return row.key == "attention_bias"; });
  a.keys = with(a.keys, {{"num_key_value_heads", &M::kv_heads, 32}});
  a.windows = Windows::layers;
  a.window_absent = 4096;
  a.full_every = 4;
  a.full_every_key = "sliding_window_pattern";
  a.turns_windows_only = true;
  return a;
}

}  // namespace trireme::model
