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

void Verbs::forward_partitioned(const schedule::Forward& op, const model::Stage& stage, const StageOperands& operands,
                                nn::Mode mode) {
  const PlainOperators guard;
  if (model::is_of_experts(stage.kind)) return forward_experts(op, stage, operands, mode);
  const store::ActivationStore::Key key{op.block, *op.stage, op.microbatch};
  const nn::Layer& of = layer(op.block, *op.stage);
  nn::Kept kept(of.kept);
  const bool cached = caches(op, stage.kind);
  if (cached)
    if (std::vector<at::Tensor> cache = activations_.take_any(key); !cache.empty())
      kept.put_saved(std::move(cache), model::Keep::kv_cache);
  {
    nn::StageFrame f = stage_frame(op, schedule::Phase::forward, kept, operands, cached ? nn::Mode::generate : mode);
    of.code->forward(f);
  }
  if (!cached && options_.mode != nn::Mode::train) return;
  // A recomputed block keeps the input of its first stage.
  const bool reads_block = op.keep == model::Keep::input && op.stage->value == 0;
  keep(key,
       reads_block ? std::vector{values(op.microbatch).residual(schedule::Phase::forward)} : kept.take_saved(op.keep));
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
  const nn::Layer& of = layer(op.block, *op.stage);
  nn::Kept kept(of.kept);
  {
    nn::StageFrame f =
        stage_frame(op, schedule::Phase::recompute, kept, operands, last ? nn::Mode::rebuild : nn::Mode::train);
    of.code->forward(f);
  }
  if (last) stream.reset();
  keep(key, kept.take_saved(model::Keep::products));
}

void Verbs::backward_partitioned(const schedule::Backward& op, const model::Stage& stage, const Operands& of) {
  const PlainOperators guard;
  if (model::is_of_experts(stage.kind)) return backward_experts(op, stage, of);
  const store::ActivationStore::Key key{op.block, *op.stage, op.microbatch};
  const nn::Layer& partitioned = layer(op.block, *op.stage);
  std::vector<at::Tensor> saved = activations_.take(key);
  // As planned: pending tensors are allocated before the saved ones are freed.
  const std::vector<at::Tensor> until_then = of.weights_wait ? saved : std::vector<at::Tensor>();
  nn::Kept kept(partitioned.kept);
  nn::StageFrame f = stage_frame(op, schedule::Phase::backward, kept, of.stages.front(), nn::Mode::train);
  if (op.part == schedule::BackwardPart::weight) {
    kept.put_pending(std::move(saved));
    return partitioned.code->backward_weight(f);
  }
  kept.put_saved(std::move(saved));
  if (op.part == schedule::BackwardPart::whole) return partitioned.code->backward(f);
  partitioned.code->backward_input(f);
  if (of.weights_wait)
    keep(key, kept.take_pending());
  else
    activations_.keep(key, kept.take_pending());
}

void Verbs::run(const schedule::Rebuild& op, const Operands& operands) {
  const PlainOperators guard;
  const device::ChargeTo charge(device::Category::workspace);
  with_kept(op.block, op.segment, op.microbatch, [&](nn::Kept& kept) {
    nn::StageFrame f = stage_frame(op, schedule::Phase::again, kept, operands.stages.front(), nn::Mode::train);
    layer(op.block, op.segment).code->rebuild(f);
  });
}

void Verbs::with_kept(Block block, Stage stage, Microbatch m, const std::function<void(nn::Kept&)>& use) {
  const store::ActivationStore::Key key{block, stage, m};
  std::vector<at::Tensor> tensors = activations_.take(key);
  nn::Kept kept(layer(block, stage).kept);
  kept.put_any(tensors);
  use(kept);
  activations_.keep(key, std::move(tensors));
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
