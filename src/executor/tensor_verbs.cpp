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
using enum model::TensorId;

}  // namespace

const nn::Layer& Verbs::layer(Block block, Stage stage) const {
  return layers_.at(static_cast<std::size_t>(block.value)).at(static_cast<std::size_t>(stage.value));
}

void Verbs::end_attention(const ShardedForward& call, const Frame& now, nn::Saved& saved) {
  const nn::Layer& layers = layer(call.block, call.number);
  const model::TensorId result = model::result_of(call.stage);
  const at::Tensor input = now.take(model::input_of(call.stage.kind));
  const at::Tensor whole_keys = now.has(keys) ? now.take(keys) : at::Tensor();
  const at::Tensor addend = result == residual ? now[residual] : at::Tensor();
  now[result] = layers.output
                    ? layers.output->forward(input, addend, call.operands.parameters, call.mode, saved.tensors)
                    : layers.attend->forward(input, whole_keys, addend, call.operands.parameters,
                                             microbatch(call.microbatch), call.mode, saved.tensors);
}

void Verbs::forward_branch(const ShardedForward& call, const Frame& now, nn::Saved& saved) {
  const at::Tensor input = now.take(normed);
  at::Tensor& output = now[model::output_of(call.stage.kind)];
  output =
      layer(call.block, call.number)
          .branch->forward(input, {}, call.operands.parameters, microbatch(call.microbatch), call.mode, saved.tensors);
  const std::vector<nn::Layer>& stages = layers_.at(static_cast<std::size_t>(call.block.value));
  const auto next = static_cast<std::size_t>(call.number.value) + 1;
  if (next < stages.size() && stages[next].qk_norm) now[statistics] = stages[next].qk_norm->sums_of_squares(output);
}

void Verbs::finish_norm_of_heads(const nn::Layer& layer, const std::vector<at::Tensor>& saved, const Frame& d) {
  layer.qk_norm->finish_backward(d[projected], d[statistics], saved);
  d[statistics].reset();
}

void Verbs::forward_sharded(const ShardedForward& call, const Frame& now, nn::Saved& saved) {
  const nn::Layer& of = layer(call.block, call.number);
  const std::vector<at::Tensor>& parameters = call.operands.parameters;
  const nn::Microbatch& m = microbatch(call.microbatch);
  switch (call.stage.kind) {
    case model::StageKind::input:
      now[normed] = now[residual];
      if (nn::saves(call.mode)) saved.tensors = {now[residual]};
      return;
    case model::StageKind::norm: now[normed] = of.norm->forward(now[residual], parameters, call.mode, saved); return;
    case model::StageKind::post_norm:
      now[residual] = of.norm->forward(now[branch_output], parameters, call.mode, saved).add_(now[residual]);
      now[branch_output].reset();
      return;
    case model::StageKind::embedding:
      now[residual].reset();
      now[branch_output] = of.embedding->forward(parameters, m);
      return;
    case model::StageKind::logits:
      now[residual].reset();
      now[vocabulary] = of.head->forward(now[normed], parameters, m, call.mode, now[logits]);
      if (!nn::saves(call.mode)) now[normed].reset();
      return;
    case model::StageKind::attend:
    case model::StageKind::output: return end_attention(call, now, saved);
    case model::StageKind::qk_norm:
      now[projected] = of.qk_norm->forward(now[projected], now[statistics], parameters, m, call.mode, saved.tensors);
      now[statistics].reset();
      return;
    case model::StageKind::core_attention: {
      const at::Tensor qkv = now.take(projected);
      now[attended] = of.core_attention->forward(qkv, m, call.mode, saved.tensors);
      return;
    }
    default: forward_branch(call, now, saved);
  }
}

void Verbs::forward_partitioned(const schedule::Forward& op, const model::Stage& stage, const StageOperands& operands,
                                nn::Mode mode) {
  const PlainOperators guard;
  if (model::is_of_experts(stage.kind)) return forward_experts(op, stage, operands, mode);
  const store::ActivationStore::Key key{op.block, *op.stage, op.microbatch};
  nn::Saved saved;
  const bool cached = caches(op, stage.kind);
  if (cached) saved.tensors = activations_.take_any(key);
  forward_sharded({.block = op.block,
                   .number = *op.stage,
                   .microbatch = op.microbatch,
                   .stage = stage,
                   .operands = operands,
                   .mode = cached ? nn::Mode::generate : mode},
                  frame(op, schedule::Phase::forward), saved);
  // A block that runs again keeps what its first stage read.
  if (op.keep == model::Keep::input && op.stage->value == 0)
    saved.tensors = {values(op.microbatch).residual(schedule::Phase::forward)};
  if (cached || options_.mode == nn::Mode::train) keep(key, std::move(saved.tensors));
}

void Verbs::recompute_partitioned(const schedule::Recompute& op, const model::Stage& stage,
                                  const StageOperands& operands) {
  const PlainOperators guard;
  if (model::is_of_experts(stage.kind)) return recompute_experts(op, stage, operands);
  at::Tensor& stream = values(op.microbatch).residual(schedule::Phase::recompute);
  const store::ActivationStore::Key key{op.block, *op.stage, op.microbatch};
  std::vector<at::Tensor> input = activations_.take(key);
  if (op.stage->value == 0) stream = std::move(input.front());
  input.clear();
  const bool last = op.stage->value + 1 == static_cast<int>(model_[op.block].stages.size());
  nn::Saved saved;
  forward_sharded({.block = op.block,
                   .number = *op.stage,
                   .microbatch = op.microbatch,
                   .stage = stage,
                   .operands = operands,
                   .mode = last ? nn::Mode::rebuild : nn::Mode::train},
                  frame(op, schedule::Phase::recompute), saved);
  if (last) stream.reset();
  keep(key, std::move(saved.tensors));
}

void Verbs::backward_partitioned(const schedule::Backward& op, const model::Stage& stage, const Operands& of) {
  const PlainOperators guard;
  const StageOperands& operands = of.stages.front();
  if (model::is_of_experts(stage.kind)) return backward_experts(op, stage, of);
  const Frame d = frame(op, schedule::Phase::backward);
  const nn::Layer& partitioned = layer(op.block, *op.stage);
  const store::ActivationStore::Key key{op.block, *op.stage, op.microbatch};
  const nn::Microbatch& m = microbatch(op.microbatch);
  std::vector<at::Tensor> saved = activations_.take(key);
  const bool input = op.part == schedule::BackwardPart::input;
  // As planned: what waits comes beside what was saved.
  const std::vector<at::Tensor> until_then = of.weights_wait ? saved : std::vector<at::Tensor>();
  const model::TensorId upstream = model::upstream_of(stage);
  // The gradient that the backward reads. That of the residual stream is read by the norm before the branch, too.
  const auto take_upstream = [&] { return upstream == residual ? d[residual] : d.take(upstream); };
  switch (stage.kind) {
    case model::StageKind::input:
      if (op.part == schedule::BackwardPart::weight) return;
      d[residual] = d.take(normed).add_(d[residual]);
      break;
    case model::StageKind::qk_norm:
      if (!input) return partitioned.qk_norm->backward_weight(operands.gradients, saved);
      d[statistics] = partitioned.qk_norm->backward_input(d[projected], operands.parameters, m, saved);
      if (stage.enter != model::Exchange::all_reduce_statistics) finish_norm_of_heads(partitioned, saved, d);
      break;
    case model::StageKind::norm: {
      if (op.part == schedule::BackwardPart::weight)
        return partitioned.norm->backward_weight(operands.gradients, saved);
      const at::Tensor d_normed = d.take(normed);
      d[residual] =
          input ? partitioned.norm->backward_input(d_normed, d[residual], operands.parameters, saved)
                : partitioned.norm->backward(d_normed, d[residual], operands.parameters, operands.gradients, saved);
      break;
    }
    case model::StageKind::post_norm:
      if (op.part == schedule::BackwardPart::weight)
        return partitioned.norm->backward_weight(operands.gradients, saved);
      d[branch_output] =
          input ? partitioned.norm->backward_input(d[residual].clone(), {}, operands.parameters, saved)
                : partitioned.norm->backward(d[residual].clone(), {}, operands.parameters, operands.gradients, saved);
      break;
    case model::StageKind::embedding:
      partitioned.embedding->backward(take_upstream(), operands.gradients, m);
      values(op.microbatch).residual(schedule::Phase::backward).reset();
      break;
    case model::StageKind::logits: {
      const at::Tensor h = d.take({normed, schedule::Phase::forward});
      const at::Tensor softmax = d.take({vocabulary, schedule::Phase::forward});
      d[normed] = partitioned.head->backward(h, softmax, operands.parameters, operands.gradients, m,
                                             d.take({logits, schedule::Phase::forward}));
      break;
    }
    case model::StageKind::attend:
      if (input) {
        const schedule::TensorRef gathered{keys, schedule::Phase::again};
        const at::Tensor whole_keys = d.has(gathered) ? d.take(gathered) : at::Tensor();
        nn::Attend::Gradients found =
            partitioned.attend->backward_input(take_upstream(), whole_keys, operands.parameters, m, saved);
        d[projected] = std::move(found.qkv);
        if (d.has(gathered)) d[keys] = std::move(found.keys);
      } else {
        partitioned.attend->backward_weight(operands.gradients, saved);
      }
      break;
    case model::StageKind::core_attention:
      d[projected] = partitioned.core_attention->backward(take_upstream(), m, saved);
      break;
    case model::StageKind::output:
      if (input)
        d[attended] = partitioned.output->backward_input(take_upstream(), operands.parameters, saved);
      else
        partitioned.output->backward_weight(operands.gradients, saved);
      break;
    default:
      if (input)
        d[normed] = partitioned.branch->backward_input(take_upstream(), operands.parameters, m, saved);
      else
        partitioned.branch->backward_weight(d.take({normed, schedule::Phase::again}), operands.gradients, saved);
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
  frame(op, schedule::Phase::again)[normed] =
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
