// SPDX-License-Identifier: Apache-2.0
// The verbs of the tensor axis, and the stages that it cuts. What runs on the tensor lane's thread uses plain loops:
// only the compute lane's has a team.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "executor/arithmetic.hpp"
#include "trireme/base/error.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/executor/executor.hpp"
#include "trireme/kernels/vocabulary.hpp"
#include "trireme/schedule/access.hpp"

namespace trireme::executor {
namespace {

using PlainOperators = at::AutoDispatchBelowADInplaceOrView;

}  // namespace

const nn::Layer& Executor::layer(Block block, Stage stage) const {
  return layers_.at(static_cast<std::size_t>(block.value)).at(static_cast<std::size_t>(stage.value));
}

void Executor::forward_cut(const schedule::Forward& op, const model::Stage& stage, nn::Mode mode) {
  const PlainOperators guard;
  const StageOperands& operands = program_[static_cast<std::size_t>(op_)].front();
  const nn::Layer& cut = layer(op.block, *op.stage);
  nn::Saved saved;
  switch (stage.kind) {
    case model::StageKind::norm: branch_ = cut.norm->forward(hidden_, operands.parameters, mode, saved); break;
    case model::StageKind::embedding:
      hidden_.reset();
      branch_ = cut.embedding->forward(operands.parameters, microbatch(op.microbatch));
      break;
    case model::StageKind::logits:
      hidden_.reset();
      vocabulary_ = cut.head->forward(branch_, operands.parameters, microbatch(op.microbatch), mode, logits_);
      if (!nn::saves(mode)) branch_.reset();
      break;
    default:
      branch_ = cut.branch->forward(branch_, {}, operands.parameters, microbatch(op.microbatch), mode, saved.tensors);
  }
  // A block that runs again keeps what its first stage read.
  if (op.keep == model::Keep::input && op.stage->value == 0) saved.tensors = {hidden_};
  if (options_.mode == nn::Mode::train) keep({op.block, *op.stage, op.microbatch}, std::move(saved.tensors));
}

void Executor::recompute_cut(const schedule::Recompute& op, const model::Stage& stage) {
  const PlainOperators guard;
  const StageOperands& operands = program_[static_cast<std::size_t>(op_)].front();
  const nn::Layer& cut = layer(op.block, *op.stage);
  const store::ActivationStore::Key key{op.block, *op.stage, op.microbatch};
  std::vector<at::Tensor> input = activations_.take(key);
  if (op.stage->value == 0) recomputed_ = std::move(input.front());
  input.clear();
  const bool last = op.stage->value + 1 == static_cast<int>(model_[op.block].stages.size());
  const nn::Mode mode = last ? nn::Mode::rebuild : nn::Mode::train;
  nn::Saved saved;
  if (stage.kind == model::StageKind::norm)
    branch_ = cut.norm->forward(recomputed_, operands.parameters, mode, saved);
  else
    branch_ = cut.branch->forward(branch_, {}, operands.parameters, microbatch(op.microbatch), mode, saved.tensors);
  if (last) recomputed_.reset();
  keep(key, std::move(saved.tensors));
}

void Executor::backward_cut(const schedule::Backward& op, const model::Stage& stage) {
  const PlainOperators guard;
  const StageOperands& operands = program_[static_cast<std::size_t>(op_)].front();
  const nn::Layer& cut = layer(op.block, *op.stage);
  const store::ActivationStore::Key key{op.block, *op.stage, op.microbatch};
  const nn::Microbatch& m = microbatch(op.microbatch);
  std::vector<at::Tensor> saved = activations_.take(key);
  at::Tensor& upstream = stage.leave == model::Join::scatter_sequence ? branch_ : hidden_;
  switch (stage.kind) {
    case model::StageKind::norm:
      hidden_ = cut.norm->backward(branch_, hidden_, operands.parameters, operands.gradients, saved);
      branch_.reset();
      break;
    case model::StageKind::embedding:
      cut.embedding->backward(upstream, operands.gradients, m);
      branch_.reset();
      hidden_.reset();
      break;
    case model::StageKind::logits:
      branch_ =
          cut.head->backward(branch_, vocabulary_, operands.parameters, operands.gradients, m, std::move(logits_));
      vocabulary_.reset();
      break;
    default:
      if (op.part == schedule::BackwardPart::input) {
        branch_ = cut.branch->backward_input(upstream, operands.parameters, m, saved);
        activations_.keep(key, std::move(saved));
      } else {
        cut.branch->backward_weight(branch_again_, operands.gradients, saved);
        branch_again_.reset();
      }
  }
}

void Executor::run(const schedule::ForwardAgain& op) {
  const device::ChargeTo charge(device::Category::workspace);
  const store::ActivationStore::Key key{op.block, op.stage, op.microbatch};
  std::vector<at::Tensor> saved = activations_.take(key);
  branch_again_ =
      layer(op.block, op.stage).norm->again(program_[static_cast<std::size_t>(op_)].front().parameters, saved);
  activations_.keep(key, std::move(saved));
}

void Executor::run(const schedule::GatherSequence& op) {
  const device::ChargeTo charge(device::Category::workspace);
  at::Tensor& to = op.pass == schedule::Pass::again ? branch_again_ : branch_;
  const at::Tensor from = op.pass == schedule::Pass::backward ? hidden_ : to;
  at::Tensor whole = at::empty({from.size(0) * links_.tensor->size(), from.size(1)}, from.options());
  links_.tensor->all_gather(from.const_data_ptr(), whole.mutable_data_ptr(), from.numel(), store_.compute());
  to = std::move(whole);
}

void Executor::run(const schedule::ScatterSequence& op) {
  const device::ChargeTo charge(device::Category::workspace);
  const at::Tensor whole = widened(branch_);
  const at::Tensor sum = at::empty({whole.size(0) / links_.tensor->size(), whole.size(1)}, whole.options());
  links_.tensor->reduce_scatter(whole.const_data_ptr<float>(), sum.mutable_data_ptr<float>(), sum.numel(),
                                store_.compute(), false);
  put_sum(sum, op.pass);
}

void Executor::run(const schedule::AllReduceActivation& op) {
  const device::ChargeTo charge(device::Category::workspace);
  const at::Tensor sum = widened(branch_);
  links_.tensor->all_reduce(sum.mutable_data_ptr<float>(), sum.numel(), store_.compute());
  put_sum(sum, op.pass);
}

void Executor::put_sum(const at::Tensor& sum, schedule::Pass pass) {
  const at::ScalarType type = branch_.scalar_type();
  if (pass == schedule::Pass::backward) {
    branch_ = plus_residual(sum, {}, type);
    return;
  }
  at::Tensor& stream = pass == schedule::Pass::forward ? hidden_ : recomputed_;
  stream = plus_residual(sum, stream, type);
  branch_.reset();
}

void Executor::run(const schedule::GatherVocabulary& op) {
  const device::ChargeTo charge(device::Category::workspace);
  const at::Tensor gathered =
      at::empty({links_.tensor->size(), vocabulary_.size(0), vocabulary_.size(1)}, vocabulary_.options());
  links_.tensor->all_gather(vocabulary_.const_data_ptr(), gathered.mutable_data_ptr(), vocabulary_.numel(),
                            DType::fp32);
  if (options_.mode == nn::Mode::infer) {
    result_.logits = layer(op.block, op.stage).head->joined_logits(gathered);
    return vocabulary_.reset();
  }
  vocabulary_ = at::empty({gathered.size(1), 2}, gathered.options());
  const nn::Microbatch& m = microbatch(op.microbatch);
  if (gathered.is_cuda()) {
    if (!device_loss_.defined()) device_loss_ = at::zeros({2}, gathered.options().dtype(at::kDouble));
    kernels::combine_statistics(gathered, m.targets, vocabulary_, m.z_loss, device_loss_);
  } else {
    loss_ += kernels::combine_statistics(gathered, m.targets, vocabulary_, m.z_loss);
  }
  if (options_.mode == nn::Mode::evaluate) finish_evaluation(op.microbatch);
}

void Executor::run(const schedule::SumCopies& op) {
  const shard::CopiedRanges& ranges = copied_[static_cast<std::size_t>(op.block.value)];
  const bool on_host = links_.copies_on_host != nullptr && store_.gradient(op.block).is_cpu();
  sum_ranges(op.block, ranges.everywhere, on_host ? links_.copies_on_host : links_.copies);
  sum_ranges(op.block, ranges.in_groups, on_host ? links_.group_copies_on_host : links_.group_copies);
}

void Executor::sum_ranges(ParamBlock block, const std::vector<shard::Range>& ranges, comm::Collectives* link) {
  if (ranges.empty()) return;  // on the whole tensor axis alike
  const device::ChargeTo charge(device::Category::workspace);
  const at::Tensor packed = at::empty({shard::elements(ranges)}, store_.gradient(block).options());
  const at::Tensor& gradient = store_.gradient(block);
  pack(gradient, ranges, packed);
  link->all_reduce(packed.mutable_data_ptr<float>(), packed.numel(), DType::fp32);
  unpack(packed, ranges, gradient);
}

}  // namespace trireme::executor
