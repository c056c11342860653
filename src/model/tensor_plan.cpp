// SPDX-License-Identifier: Apache-2.0
// The tables.
#include "trireme/model/tensor_plan.hpp"

#include "trireme/base/error.hpp"

namespace trireme::model {

const std::vector<StageRule>& stage_rules() {
  constexpr Exchange gather = Exchange::gather_sequence, scatter = Exchange::scatter_sequence;
  constexpr std::nullopt_t none = std::nullopt;
  static const std::vector<StageRule> rules = {
      {StageKind::embedding, {{"", StageKind::embedding, Has::branch, none, scatter}}},
      {StageKind::positions, {}},
      {StageKind::moe, {}},  // on the residual stream: every rank's tokens by themselves
      {StageKind::attention,
       {{"attention_norm", StageKind::norm, Has::pre, none, none},
        {"attention", StageKind::attention_branch, Has::branch, gather, scatter},
        {"attention_post_norm", StageKind::post_norm, Has::post, none, none}}},
      {StageKind::mlp,
       {{"mlp_norm", StageKind::norm, Has::pre, none, none},
        {"mlp", StageKind::mlp_branch, Has::branch, gather, scatter},
        {"mlp_post_norm", StageKind::post_norm, Has::post, none, none}}},
      {StageKind::head,
       {{"head_norm", StageKind::norm, Has::pre, none, none},
        {"logits", StageKind::logits, Has::branch, gather, Exchange::gather_vocabulary}}},
  };
  return rules;
}

ParameterRule rule_of(Role role, const Decoder& decoder) {
  const bool of_all_heads = decoder.qk_norm == QkNorm::width;  // as wide as they are together
  switch (role) {
    case Role::embedding:
    case Role::head: return {Split::vocabulary, Unit::vocabulary};
    case Role::q:
    case Role::q_b:
    case Role::kv_b:
    case Role::q_bias: return {Split::column, Unit::heads};
    case Role::q_a:  // every rank expands its own heads from them
    case Role::q_a_norm:
    case Role::kv_a:
    case Role::kv_a_norm: return {.sum_of_heads = true};
    case Role::qkv:
    case Role::qkv_bias: return {Split::column, Unit::heads, 3};
    case Role::k:
    case Role::v:
    case Role::k_bias:
    case Role::v_bias: return {Split::column, Unit::kv_heads};
    case Role::gate:
    case Role::up:
    case Role::gate_bias:
    case Role::up_bias: return {Split::column, Unit::intermediate};
    case Role::q_norm:
      if (of_all_heads) return {Split::column, Unit::heads};
      return {.sum_of_heads = true};
    case Role::k_norm:
      if (of_all_heads) return {Split::column, Unit::kv_heads};
      return {.sum_of_heads = true};
    case Role::o: return {Split::row, Unit::heads};
    case Role::down: return {Split::row, Unit::intermediate};
    case Role::expert_gate:  // in a separate block, which tensor ranks divide like all others (`divide_experts`)
    case Role::expert_up:
    case Role::expert_down:
    case Role::o_bias:  // added by one of those that are summed: every rank computes the whole gradient
    case Role::down_bias: return {};
    case Role::positions:
    case Role::attention_norm:
    case Role::attention_norm_bias:
    case Role::attention_post_norm:
    case Role::mlp_norm:
    case Role::mlp_post_norm:
    case Role::mlp_norm_bias:
    case Role::router:
    case Role::router_bias:
    case Role::shared_gate:
    case Role::shared_up:
    case Role::shared_down:
    case Role::shared_weight:
    case Role::final_norm:
    case Role::final_norm_bias: return {.on_residual_stream = true};
  }
  throw BugError("the tensor plan has no rule for a role");
}

}  // namespace trireme::model
