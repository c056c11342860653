// SPDX-License-Identifier: Apache-2.0
// The stages that the tensor and the context axis divide, and the sums of gradients over the tensor axis.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>

#include "executor/arithmetic.hpp"
#include "executor/verbs.hpp"
#include "trireme/base/error.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/schedule/access.hpp"

namespace trireme::executor {
namespace {

using PlainOperators = at::AutoDispatchBelowADInplaceOrView;

}  // namespace

const nn::Layer& Verbs::layer(Block block, Stage stage) const {
  return layers_.at(static_cast<std::size_t>(block.value)).at(static_cast<std::size_t>(stage.value));
}

void Verbs::end_attention(const model::Stage& stage, const StageOperands& operands, const nn::Layer& layer,
                          Microbatch m, nn::Mode mode, at::Tensor& stream, nn::Saved& saved) {
  InFlight& now = in_flight(m);
  const bool adds = model::adds_to_stream(stage);
  const at::Tensor residual = adds ? stream : at::Tensor();
  at::Tensor out = layer.output ? layer.output->forward(now.branch, residual, operands.parameters, mode, saved.tensors)
                                : layer.attend->forward(now.branch, now.keys, residual, operands.parameters,
                                                        microbatch(m), mode, saved.tensors);
  now.keys.reset();
  now.branch.reset();
  (adds ? stream : now.branch) = std::move(out);
}

void Verbs::leave_statistics(Block block, Stage projection, InFlight& of) const {
  const std::vector<nn::Layer>& stages = layers_.at(static_cast<std::size_t>(block.value));
  const auto next = static_cast<std::size_t>(projection.value) + 1;
  if (next < stages.size() && stages[next].qk_norm) of.statistics = stages[next].qk_norm->sums_of_squares(of.branch);
}

void Verbs::finish_norm_of_heads(const nn::Layer& layer, const std::vector<at::Tensor>& saved, InFlight& of) {
  layer.qk_norm->finish_backward(of.branch, of.statistics, saved);
  of.statistics.reset();
}

void Verbs::forward_partitioned(const schedule::Forward& op, const model::Stage& stage, const StageOperands& operands,
                                nn::Mode mode) {
  const PlainOperators guard;
  if (model::is_of_experts(stage.kind)) return forward_experts(op, stage, operands, mode);
  InFlight& now = in_flight(op.microbatch);
  const nn::Layer& partitioned = layer(op.block, *op.stage);
  nn::Saved saved;
  const bool cached = caches(op, stage.kind);
  if (cached) saved.tensors = activations_.take_any({op.block, *op.stage, op.microbatch});
  const nn::Mode branch_mode = cached ? nn::Mode::generate : mode;
  switch (stage.kind) {
    case model::StageKind::input:
      now.branch = now.hidden;
      if (nn::saves(mode)) saved.tensors = {now.hidden};
      break;
    case model::StageKind::norm:
      now.branch = partitioned.norm->forward(now.hidden, operands.parameters, mode, saved);
      break;
    case model::StageKind::post_norm:
      now.hidden = partitioned.norm->forward(now.branch, operands.parameters, mode, saved).add_(now.hidden);
      now.branch.reset();
      break;
    case model::StageKind::embedding:
      now.hidden.reset();
      now.branch = partitioned.embedding->forward(operands.parameters, microbatch(op.microbatch));
      break;
    case model::StageKind::logits:
      now.hidden.reset();
      now.vocabulary =
          partitioned.head->forward(now.branch, operands.parameters, microbatch(op.microbatch), mode, now.logits);
      if (!nn::saves(mode)) now.branch.reset();
      break;
    case model::StageKind::attend:
    case model::StageKind::output:
      end_attention(stage, operands, partitioned, op.microbatch, branch_mode, now.hidden, saved);
      break;
    case model::StageKind::qk_norm:
      now.branch = partitioned.qk_norm->forward(now.branch, now.statistics, operands.parameters,
                                                microbatch(op.microbatch), mode, saved.tensors);
      now.statistics.reset();
      break;
    case model::StageKind::core_attention:
      now.branch = partitioned.core_attention->forward(now.branch, microbatch(op.microbatch), mode, saved.tensors);
      break;
    default:
      now.branch = partitioned.branch->forward(now.branch, {}, operands.parameters, microbatch(op.microbatch),
                                               branch_mode, saved.tensors);
      leave_statistics(op.block, *op.stage, now);
  }
  // A block that runs again keeps what its first stage read.
  if (op.keep == model::Keep::input && op.stage->value == 0) saved.tensors = {now.hidden};
  if (cached || options_.mode == nn::Mode::train) keep({op.block, *op.stage, op.microbatch}, std::move(saved.tensors));
}

void Verbs::recompute_partitioned(const schedule::Recompute& op, const model::Stage& stage,
                                  const StageOperands& operands) {
  const PlainOperators guard;
  if (model::is_of_experts(stage.kind)) return recompute_experts(op, stage, operands);
  InFlight& now = in_flight(op.microbatch);
  const nn::Layer& partitioned = layer(op.block, *op.stage);
  const store::ActivationStore::Key key{op.block, *op.stage, op.microbatch};
  std::vector<at::Tensor> input = activations_.take(key);
  if (op.stage->value == 0) now.recomputed = std::move(input.front());
  input.clear();
  const bool last = op.stage->value + 1 == static_cast<int>(model_[op.block].stages.size());
  const nn::Mode mode = last ? nn::Mode::rebuild : nn::Mode::train;
  nn::Saved saved;
  if (stage.kind == model::StageKind::input) {
    now.branch = now.recomputed;
    saved.tensors = {now.recomputed};
  } else if (stage.kind == model::StageKind::norm) {
    now.branch = partitioned.norm->forward(now.recomputed, operands.parameters, mode, saved);
  } else if (stage.kind == model::StageKind::post_norm) {
    now.recomputed = partitioned.norm->forward(now.branch, operands.parameters, mode, saved).add_(now.recomputed);
  } else if (model::ends_attention(stage.kind)) {
    end_attention(stage, operands, partitioned, op.microbatch, mode, now.recomputed, saved);
  } else if (stage.kind == model::StageKind::qk_norm) {
    now.branch = partitioned.qk_norm->forward(now.branch, now.statistics, operands.parameters,
                                              microbatch(op.microbatch), mode, saved.tensors);
    now.statistics.reset();
  } else if (stage.kind == model::StageKind::core_attention) {
    now.branch = partitioned.core_attention->forward(now.branch, microbatch(op.microbatch), mode, saved.tensors);
  } else {
    now.branch = partitioned.branch->forward(now.branch, {}, operands.parameters, microbatch(op.microbatch), mode,
                                             saved.tensors);
    leave_statistics(op.block, *op.stage, now);
  }
  if (last) now.recomputed.reset();
  keep(key, std::move(saved.tensors));
}

void Verbs::backward_partitioned(const schedule::Backward& op, const model::Stage& stage, const Operands& of) {
  const PlainOperators guard;
  const StageOperands& operands = of.stages.front();
  if (model::is_of_experts(stage.kind)) return backward_experts(op, stage, of);
  InFlight& now = in_flight(op.microbatch);
  const nn::Layer& partitioned = layer(op.block, *op.stage);
  const store::ActivationStore::Key key{op.block, *op.stage, op.microbatch};
  const nn::Microbatch& m = microbatch(op.microbatch);
  std::vector<at::Tensor> saved = activations_.take(key);
  const bool input = op.part == schedule::BackwardPart::input;
  // As planned: what waits comes beside what was saved.
  const std::vector<at::Tensor> until_then = of.weights_wait ? saved : std::vector<at::Tensor>();
  const bool gathered = stage.leave == model::Exchange::scatter_sequence;
  const bool of_branch = gathered || stage.sum_is_normed || stage.kind == model::StageKind::projection ||
                         stage.kind == model::StageKind::core_attention || stage.kind == model::StageKind::qk_norm;
  at::Tensor& upstream = of_branch ? now.branch : now.hidden;
  switch (stage.kind) {
    case model::StageKind::input:
      if (op.part == schedule::BackwardPart::weight) return;
      now.hidden = now.branch.add_(now.hidden);
      now.branch.reset();
      break;
    case model::StageKind::qk_norm:
      if (!input) return partitioned.qk_norm->backward_weight(operands.gradients, saved);
      now.statistics = partitioned.qk_norm->backward_input(upstream, operands.parameters, m, saved);
      if (stage.enter != model::Exchange::all_reduce_statistics) finish_norm_of_heads(partitioned, saved, now);
      break;
    case model::StageKind::norm:
      if (op.part == schedule::BackwardPart::weight)
        return partitioned.norm->backward_weight(operands.gradients, saved);
      now.hidden =
          input ? partitioned.norm->backward_input(now.branch, now.hidden, operands.parameters, saved)
                : partitioned.norm->backward(now.branch, now.hidden, operands.parameters, operands.gradients, saved);
      now.branch.reset();
      break;
    case model::StageKind::post_norm:
      if (op.part == schedule::BackwardPart::weight)
        return partitioned.norm->backward_weight(operands.gradients, saved);
      now.branch =
          input ? partitioned.norm->backward_input(now.hidden.clone(), {}, operands.parameters, saved)
                : partitioned.norm->backward(now.hidden.clone(), {}, operands.parameters, operands.gradients, saved);
      break;
    case model::StageKind::embedding:
      partitioned.embedding->backward(upstream, operands.gradients, m);
      now.branch.reset();
      now.hidden.reset();
      break;
    case model::StageKind::logits:
      now.branch = partitioned.head->backward(now.branch, now.vocabulary, operands.parameters, operands.gradients, m,
                                              std::move(now.logits));
      now.vocabulary.reset();
      break;
    case model::StageKind::attend:
      if (input) {
        nn::Attend::Gradients d = partitioned.attend->backward_input(upstream, now.keys, operands.parameters, m, saved);
        now.branch = std::move(d.qkv);
        now.keys = std::move(d.keys);
      } else {
        partitioned.attend->backward_weight(operands.gradients, saved);
      }
      break;
    case model::StageKind::core_attention: now.branch = partitioned.core_attention->backward(upstream, m, saved); break;
    case model::StageKind::output:
      if (input)
        now.branch = partitioned.output->backward_input(upstream, operands.parameters, saved);
      else
        partitioned.output->backward_weight(operands.gradients, saved);
      break;
    default:
      if (input) {
        now.branch = partitioned.branch->backward_input(upstream, operands.parameters, m, saved);
      } else {
        partitioned.branch->backward_weight(now.branch_again, operands.gradients, saved);
        now.branch_again.reset();
      }
  }
  if (!input) return;
  if (of.weights_wait)
    keep(key, std::move(saved));
  else
    activations_.keep(key, std::move(saved));
}

void Verbs::run(const schedule::Rebuild& op, const Operands& operands) {
  const device::ChargeTo charge(device::Category::workspace);
  const store::ActivationStore::Key key{op.block, op.segment, op.microbatch};
  std::vector<at::Tensor> saved = activations_.take(key);
  const nn::Layer& of = layer(op.block, op.segment);
  in_flight(op.microbatch).branch_again =
      of.norm ? of.norm->again(operands.stages.front().parameters, saved) : saved.front();
  activations_.keep(key, std::move(saved));
}

void Verbs::run(const schedule::AllReduceReplicated& op) {
  if (op.over == schedule::Copies::pipeline) return sum_tied(op.block);
  const shard::CopiedRanges& ranges = copied_[static_cast<std::size_t>(op.block.value)];
  sum_ranges(op.block, ranges.everywhere, mesh::Group::tensor);
  sum_ranges(op.block, ranges.in_groups, mesh::Group::tensor_group);
}

void Verbs::sum_ranges(ParamBlock block, const std::vector<shard::Range>& ranges, mesh::Group group) {
  if (ranges.empty()) return;  // on the whole tensor axis alike
  const device::ChargeTo charge(device::Category::workspace);
  const at::Tensor packed = at::empty({shard::elements(ranges)}, store_.gradient(block).options());
  const at::Tensor& gradient = store_.gradient(block);
  pack(gradient, ranges, packed);
  link(group, schedule::Lane::reduce, gradient)
      .all_reduce(packed.mutable_data_ptr<float>(), packed.numel(), DType::fp32);
  unpack(packed, ranges, gradient);
}

}  // namespace trireme::executor
