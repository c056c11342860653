// SPDX-License-Identifier: Apache-2.0
#include "trireme/schedule/stage_access.hpp"

#include "trireme/base/error.hpp"

namespace trireme::schedule {
namespace {

using model::StageKind, model::TensorId;
using enum model::TensorId;

/// The rows between a router and the end of its layer: before the experts and after them.
constexpr std::initializer_list<TensorId> rows_to_experts{permuted_tokens, permuted_probs};

const model::Stage& stage_at(const model::Model& model, Block block, Stage stage) {
  return model[block].stages[static_cast<std::size_t>(stage.value)];
}

/// The tensors of a forward or a recompute.
TensorAccess computed_in(Phase phase, const model::Stage& stage, const model::Decoder& decoder) {
  const auto of = [&](std::initializer_list<TensorId> ids) { return TensorSet(phase, ids); };
  const TensorId input = model::input_of(stage.kind), output = model::output_of(stage.kind);
  switch (stage.kind) {
    case StageKind::embedding: return {.reads = {}, .writes = of({residual, model::result_of(stage)})};
    case StageKind::norm:
    case StageKind::input:
      // The first stage of a recompute begins with the stream that its block saved.
      return {.reads = of({residual}), .writes = phase == Phase::recompute ? of({residual, output}) : of({output})};
    case StageKind::post_norm: return {.reads = of({input, residual}), .writes = of({input, residual})};
    case StageKind::qk_norm: return {.reads = of({projected, statistics}), .writes = of({projected, statistics})};
    case StageKind::logits: return {.reads = of({input}), .writes = of({residual, vocabulary, logits})};
    case StageKind::attend:
    case StageKind::output: {
      const TensorId result = model::result_of(stage);
      TensorAccess found{.reads = of({input}), .writes = of({input, result})};
      if (result == residual) found.reads.add({residual, phase});
      if (stage.enter == model::Exchange::gather_keys)
        found = {.reads = found.reads | of({keys}), .writes = found.writes | of({keys})};
      return found;
    }
    case StageKind::projection:  // a norm over all heads is a separate stage and reads their sums
      return {
          .reads = of({input}),
          .writes = decoder.qk_norm == model::QkNorm::width ? of({input, output, statistics}) : of({input, output})};
    case StageKind::route: return {.reads = of({residual}), .writes = of(rows_to_experts)};
    case StageKind::experts: return {.reads = of(rows_to_experts), .writes = of(rows_to_experts) | of({output})};
    case StageKind::merge: return {.reads = of({input, residual}), .writes = of({input, residual})};
    default: return {.reads = of({input}), .writes = of({input, output})};
  }
}

/// The tensors of a backward: the gradient of a stage's input, from that of its output.
TensorAccess gradients_of(const model::Stage& stage) {
  const auto d = [](std::initializer_list<TensorId> ids) { return TensorSet(Phase::backward, ids); };
  const TensorId upstream = model::upstream_of(stage), input = model::input_of(stage.kind);
  switch (stage.kind) {
    case StageKind::embedding: return {.reads = d({upstream}), .writes = {}};
    case StageKind::norm:
    case StageKind::input: return {.reads = d({normed, residual}), .writes = d({residual})};
    case StageKind::qk_norm: return {.reads = d({projected}), .writes = d({projected, statistics})};
    case StageKind::logits:
      return {.reads = TensorSet(Phase::forward, {normed, vocabulary, logits}), .writes = d({normed})};
    case StageKind::attend:
      if (stage.enter != model::Exchange::gather_keys) return {.reads = d({upstream}), .writes = d({input})};
      return {.reads = d({upstream}) | TensorSet(Phase::again, {keys}), .writes = d({input, keys})};
    case StageKind::route:
      return {.reads = d(rows_to_experts) | d({residual}), .writes = d(rows_to_experts) | d({residual})};
    case StageKind::experts: return {.reads = d({upstream}), .writes = d(rows_to_experts) | d({upstream})};
    case StageKind::merge: return {.reads = d({residual}), .writes = d({expert_output})};
    default: return {.reads = d({upstream}), .writes = d({input})};
  }
}

}  // namespace

TensorAccess tensors_of(const Forward& op, const model::Model& model, Stage stage) {
  return computed_in(Phase::forward, stage_at(model, op.block, stage), model.sizes.decoder);
}

TensorAccess tensors_of(const Recompute& op, const model::Model& model, Stage stage) {
  return computed_in(Phase::recompute, stage_at(model, op.block, stage), model.sizes.decoder);
}

TensorAccess tensors_of(const Backward& op, const model::Model& model, Stage stage) {
  const model::Stage& differentiated = stage_at(model, op.block, stage);
  if (op.part != BackwardPart::weight) return gradients_of(differentiated);
  if (model::is_branch(differentiated.kind)) return {.reads = TensorSet(Phase::again, {normed}), .writes = {}};
  return {};
}

TensorAccess tensors_of(const Rebuild& /*op*/, const model::Model& /*model*/) {
  return {.reads = {}, .writes = TensorSet(Phase::again, {normed})};
}

TensorRef sent_by(const Exchanged& op, const model::Stage& stage) {
  const bool backward = op.phase == Phase::backward;
  const auto now = [&](TensorId id) { return TensorRef{id, op.phase}; };
  switch (op.kind) {
    case Exchange::gather_sequence:
      if (!backward) return now(normed);
      return now(stage.sum_is_normed ? branch_output : residual);
    case Exchange::scatter_sequence:
    case Exchange::all_reduce_activation: return now(backward ? normed : branch_output);
    case Exchange::all_reduce_statistics: return now(statistics);
    case Exchange::gather_vocabulary: return now(vocabulary);
    case Exchange::gather_keys: return now(projected);
    case Exchange::scatter_keys: return now(keys);
    case Exchange::to_heads:
    case Exchange::to_tokens: return now(model::input_of(stage.kind));
    case Exchange::dispatch: return now(permuted_tokens);
    case Exchange::combine: return now(expert_output);
    case Exchange::sum_loads:
    case Exchange::exchange_counts: break;
  }
  throw BugError("an exchange of counts sends no tensor");
}

TensorRef delivered_by(const Exchanged& op, const model::Stage& stage) {
  const TensorRef sent = sent_by(op, stage);
  if (op.kind == Exchange::gather_keys) return {keys, op.phase};
  if (op.kind == Exchange::scatter_keys) return {projected, op.phase};
  if (sent.id == branch_output && op.kind != Exchange::gather_sequence && !stage.sum_is_normed)
    return {residual, op.phase};
  if (sent.id == residual) return {branch_output, op.phase};
  return sent;
}

TensorAccess tensors_of(const Exchanged& op, const model::Model& model) {
  if (op.kind == Exchange::sum_loads || op.kind == Exchange::exchange_counts) return {};
  const model::Stage& stage = stage_at(model, op.block, op.segment);
  const TensorRef sent = sent_by(op, stage), delivered = delivered_by(op, stage);
  TensorAccess found;
  // Keys that are gathered again are among the stage's saved tensors.
  if (op.kind != Exchange::gather_keys || op.phase != Phase::again) found.reads.add(sent);
  found.writes.add(delivered);
  switch (op.kind) {
    case Exchange::scatter_sequence:
    case Exchange::all_reduce_activation:
    case Exchange::scatter_keys:  // added to the delivered tensor; the sent one is freed
      found.reads.add(delivered);
      found.writes.add(sent);
      break;
    case Exchange::all_reduce_statistics:  // finishes the gradient of the norm
      if (op.phase == Phase::backward)
        found = {found.reads | TensorSet(op.phase, {projected}), found.writes | TensorSet(op.phase, {projected})};
      break;
    case Exchange::dispatch:
      found.reads.add({permuted_probs, op.phase});
      found.writes.add({permuted_probs, op.phase});
      break;
    default: break;
  }
  return found;
}

Resource resource_of(TensorRef tensor, Microbatch m) {
  switch (tensor.id) {
    case residual:
      if (tensor.phase == Phase::recompute) return resource::Recomputed{m};
      return resource::Hidden{m};
    case normed:
      if (tensor.phase == Phase::again) return resource::BranchAgain{m};
      return resource::Branch{m};
    case projected:
    case attended:
    case branch_output: return resource::Branch{m};
    case statistics: return resource::Statistics{m};
    case keys: return resource::Keys{m};
    case permuted_tokens:
    case permuted_probs:
    case expert_output: return resource::Rows{m};
    case logits:
    case vocabulary: return resource::Vocabulary{m};
    default: break;  // of one stage
  }
  throw BugError("a tensor without a resource");
}

}  // namespace trireme::schedule
