// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/stage_tensors.hpp"

#include "trireme/base/error.hpp"

namespace trireme::model {
namespace {

struct InputAndOutput {
  TensorId input, output;
};

InputAndOutput tensors_of(StageKind kind) {
  using enum TensorId;
  switch (kind) {
    case StageKind::embedding: return {residual, branch_output};
    case StageKind::norm:
    case StageKind::input: return {residual, normed};
    case StageKind::attention_branch:
    case StageKind::mlp_branch: return {normed, branch_output};
    case StageKind::projection: return {normed, projected};
    case StageKind::qk_norm: return {projected, projected};
    case StageKind::attend: return {projected, branch_output};
    case StageKind::core_attention: return {projected, attended};
    case StageKind::output: return {attended, branch_output};
    case StageKind::post_norm: return {branch_output, residual};
    case StageKind::logits: return {normed, vocabulary};
    case StageKind::route: return {residual, permuted_tokens};
    case StageKind::experts: return {permuted_tokens, expert_output};
    case StageKind::merge: return {expert_output, residual};
    case StageKind::positions:
    case StageKind::attention:
    case StageKind::mlp:
    case StageKind::moe:
    case StageKind::head: return {residual, residual};
  }
  throw BugError("tensors_of: unknown kind of stage");
}

}  // namespace

TensorId input_of(StageKind kind) { return tensors_of(kind).input; }
TensorId output_of(StageKind kind) { return tensors_of(kind).output; }

TensorId result_of(const Stage& stage) {
  return ends_attention(stage.kind) && adds_to_stream(stage) ? TensorId::residual : output_of(stage.kind);
}

TensorId upstream_of(const Stage& stage) {
  const TensorId output = output_of(stage.kind);
  const bool separate = stage.leave == Exchange::scatter_sequence || stage.sum_is_normed;
  return output == TensorId::branch_output && !separate ? TensorId::residual : output;
}

}  // namespace trireme::model
