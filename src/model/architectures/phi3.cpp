// SPDX-License-Identifier: Apache-2.0
// Phi-3 and Phi-4 (Abdin et al. 2024): Llama whose files hold q, k and v in one tensor, and gate and up.
#include "model/families.hpp"

namespace trireme::model {

using M = config::Model;

Architecture phi3() {
  Architecture a = llama();
  a.name = a.model_type = "phi3";
  a.models = "Phi-3 and Phi-4 (mini and medium)";
  a.class_name = "Phi3ForCausalLM";
  a.names = joined_in_files(a.names, {Role::q, Role::k, Role::v}, "model.layers.{}.self_attn.qkv_proj.weight");
  a.names = joined_in_files(a.names, {Role::gate, Role::up}, "model.layers.{}.mlp.gate_up_proj.weight");
  a.keys = with(llama_keys(),
                {{"rms_norm_eps", &M::norm_eps, 1e-5}, {"partial_rotary_factor", &M::partial_rotary_factor, 1}});
  a.windows = Windows::all;
  a.original_length_absent = 4096;
  a.dropout = {"attention_dropout", "resid_pdrop", "embd_pdrop"};
  return a;
}

}  // namespace trireme::model
