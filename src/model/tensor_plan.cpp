// SPDX-License-Identifier: Apache-2.0
// The tables.
#include "trireme/model/tensor_plan.hpp"

namespace trireme::model {

std::vector<StageRule> decoder_stages() {
  constexpr Join gather = Join::gather_sequence, scatter = Join::scatter_sequence, none = Join::none;
  return {
      {StageKind::embedding, {{"", StageKind::embedding, false, none, scatter}}},
      {StageKind::positions, {}},
      {StageKind::attention,
       {{"attention_norm", StageKind::norm, true, none, none},
        {"attention", StageKind::attention_branch, false, gather, scatter}}},
      {StageKind::mlp,
       {{"mlp_norm", StageKind::norm, true, none, none}, {"mlp", StageKind::mlp_branch, false, gather, scatter}}},
      {StageKind::head,
       {{"head_norm", StageKind::norm, true, none, none},
        {"logits", StageKind::logits, false, gather, Join::gather_vocabulary}}},
  };
}

TensorPlan llama_tensor_plan() {
  return {.parameters = {{"*.q_proj.weight", Split::column, Unit::heads},
                         {"*.k_proj.weight", Split::column, Unit::kv_heads},
                         {"*.v_proj.weight", Split::column, Unit::kv_heads},
                         {"*.o_proj.weight", Split::row, Unit::heads},
                         {"*.gate_proj.weight", Split::column, Unit::intermediate},
                         {"*.up_proj.weight", Split::column, Unit::intermediate},
                         {"*.down_proj.weight", Split::row, Unit::intermediate},
                         {"*.embed_tokens.weight", Split::vocabulary, Unit::vocabulary},
                         {"lm_head.weight", Split::vocabulary, Unit::vocabulary},
                         {"*norm.weight", Split::replicated, Unit::none, 1, true}},
          .stages = decoder_stages()};
}

TensorPlan gpt2_tensor_plan() {
  return {.parameters = {{"*.attn.c_attn.*", Split::column, Unit::heads, 3},
                         {"*.attn.c_proj.weight", Split::row, Unit::heads},
                         {"*.mlp.c_fc.*", Split::column, Unit::intermediate},
                         {"*.mlp.c_proj.weight", Split::row, Unit::intermediate},
                         {"*.c_proj.bias", Split::replicated, Unit::none, 1, false},
                         {"*.wte.weight", Split::vocabulary, Unit::vocabulary},
                         {"lm_head.weight", Split::vocabulary, Unit::vocabulary},
                         {"*.wpe.weight", Split::replicated, Unit::none, 1, true},
                         {"*.ln_*", Split::replicated, Unit::none, 1, true}},
          .stages = decoder_stages()};
}

}  // namespace trireme::model
