// SPDX-License-Identifier: Apache-2.0
// What each verb does, one function a verb.
#include <ATen/core/Tensor.h>

#include <chrono>
#include <cmath>
#include <limits>

#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/device/buffer.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/executor/executor.hpp"
#include "trireme/optim/adamw.hpp"
#include "trireme/optim/norm.hpp"
#include "trireme/schedule/access.hpp"

namespace trireme::executor {
namespace {

std::span<float> floats(at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

/// A block whose forward runs again keeps its input, and of its stages nothing.
nn::Mode mode_that_keeps(model::Keep keep) {
  switch (keep) {
    case model::Keep::input: return nn::Mode::evaluate;
    case model::Keep::products: return nn::Mode::train;
    case model::Keep::all: return nn::Mode::train_keep_all;
  }
  throw BugError("a forward keeps its input, its products or all");
}

/// to (+)= from, on a lane's thread, which has no team.
void put(std::span<const float> from, std::span<float> to, bool add) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = add ? to[i] + from[i] : from[i];
}

}  // namespace

void Executor::keep(const store::ActivationStore::Key& key, std::vector<at::Tensor> tensors) {
  for (const at::Tensor& tensor : tensors) device::charge_to(tensor, {device::Category::activations});
  activations_.keep(key, std::move(tensors));
}

void Executor::run(const schedule::Unshard& op) {
  at::Tensor& whole = store_.parameter_buffer(op.slot);
  at::Tensor& shard = op.from     ? store_.group_copy(op.block)
                      : op.staged ? store_.upload_buffer(*op.staged)
                                  : store_.wire(op.block);
  comm::Collectives& link = op.from ? *links_.group_gather : *links_.gather;
  link.all_gather(shard.const_data_ptr(), whole.mutable_data_ptr(), shard.numel(), store_.compute());
}

void Executor::run(const schedule::Reshard& op) {
  if (op.to) {
    at::Tensor& copy = store_.group_copy(op.block);
    const at::Tensor& whole = store_.parameter_buffer(parameter_slot_[static_cast<std::size_t>(op_)]);
    copy.copy_(whole.narrow(0, links_.group_gather->rank() * copy.numel(), copy.numel()));
  }
  if (options_.poison)
    store_.parameter_buffer(parameter_slot_[static_cast<std::size_t>(op_)])
        .fill_(std::numeric_limits<float>::quiet_NaN());
}

void Executor::run(const schedule::Forward& op) {
  const device::ChargeTo charge(device::Category::workspace);
  const nn::Mode mode = options_.mode == nn::Mode::train ? mode_that_keeps(op.keep) : options_.mode;
  if (const model::Stage* cut = schedule::cut_stage(model_, op.block, op.stage); cut != nullptr)
    return forward_cut(op, *cut, mode);
  for (const StageOperands& operands : program_[static_cast<std::size_t>(op_)]) {
    nn::Saved saved;
    if (op.keep == model::Keep::input && operands.stage.value == 0) saved.tensors = {hidden_};
    nn::Result result =
        layer(op.block, operands.stage)
            .whole->forward(std::move(hidden_), operands.parameters, microbatch(op.microbatch), mode, saved);
    hidden_ = std::move(result.hidden);
    if (options_.mode == nn::Mode::train)
      keep({op.block, operands.stage, op.microbatch}, std::move(saved.tensors));
    else
      loss_sum_ += result.loss_sum;
  }
  if (op.block.value + 1 < model_.blocks() || options_.mode == nn::Mode::train) return;
  if (options_.mode == nn::Mode::infer) {
    result_.logits = std::move(hidden_);
    return;
  }
  finish_evaluation(op.microbatch);
}

void Executor::finish_evaluation(Microbatch m) {
  links_.control->sum({&loss_sum_, 1});
  result_.loss = loss_sum_ * microbatch(m).loss_scale;
}

void Executor::run(const schedule::Recompute& op) {
  const device::ChargeTo charge(device::Category::workspace);
  if (const model::Stage* cut = schedule::cut_stage(model_, op.block, op.stage); cut != nullptr)
    return recompute_cut(op, *cut);
  const auto last = static_cast<int>(model_[op.block].stages.size()) - 1;
  for (const StageOperands& operands : program_[static_cast<std::size_t>(op_)]) {
    const store::ActivationStore::Key key{op.block, operands.stage, op.microbatch};
    std::vector<at::Tensor> input = activations_.take(key);
    if (operands.stage.value == 0) recomputed_ = std::move(input.front());
    input.clear();
    nn::Saved saved;
    const nn::Mode mode = operands.stage.value == last ? nn::Mode::rebuild : nn::Mode::train;
    nn::Result result =
        layer(op.block, operands.stage)
            .whole->forward(std::move(recomputed_), operands.parameters, microbatch(op.microbatch), mode, saved);
    recomputed_ = std::move(result.hidden);
    keep(key, std::move(saved.tensors));
  }
}

void Executor::run(const schedule::Backward& op) {
  const device::ChargeTo charge(device::Category::workspace);
  if (const model::Stage* cut = schedule::cut_stage(model_, op.block, op.stage); cut != nullptr)
    return backward_cut(op, *cut);
  for (const StageOperands& operands : program_[static_cast<std::size_t>(op_)]) {
    nn::Saved saved{activations_.take({op.block, operands.stage, op.microbatch})};
    nn::Result result = layer(op.block, operands.stage)
                            .whole->backward(std::move(hidden_), operands.parameters, operands.gradients,
                                             microbatch(op.microbatch), std::move(saved));
    hidden_ = std::move(result.hidden);
    loss_sum_ += result.loss_sum;
  }
}

void Executor::run(const schedule::ReduceScatter& op) {
  at::Tensor& whole = store_.gradient_buffer(op.slot);
  if (fault::point("grad.reduce")) whole.mutable_data_ptr<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  at::Tensor shard = op.staged    ? store_.download_buffer(*op.staged)
                     : op.partial ? store_.partial(op.block)
                                  : store_.gradient(op.block);
  if (options_.reduce != config::Reduce::bf16) {
    links_.reduce->reduce_scatter(whole.const_data_ptr<float>(), shard.mutable_data_ptr<float>(), shard.numel(),
                                  reduce_wire(), op.add);
    return;
  }
  at::Tensor sum = op.staged ? shard : store_.partial(op.block);
  links_.reduce->reduce_scatter(whole.const_data_ptr<float>(), sum.mutable_data_ptr<float>(), sum.numel(),
                                reduce_wire(), false);
  for (float& value : floats(sum)) value = static_cast<float>(c10::BFloat16(value));
  if (!op.partial && !op.staged) put(floats(sum), floats(shard), op.add);
}

void Executor::run(const schedule::AllReduce& op) {
  at::Tensor sum = op.staged    ? store_.download_buffer(*op.staged)
                   : op.partial ? store_.partial(op.block)
                                : store_.gradient(op.block);
  links_.replicate->all_reduce(sum.mutable_data_ptr<float>(), sum.numel(), reduce_wire());
  if (op.partial) put(floats(sum), floats(store_.gradient(op.block)), true);
}

double Executor::counted_squares(ParamBlock block, const optim::Team& team) {
  double squares = 0;
  for (const shard::Range& range : counted_[static_cast<std::size_t>(block.value)])
    squares += optim::sum_of_squares(
        floats(store_.gradient(block))
            .subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.size())),
        team);
  return squares;
}

void Executor::run(const schedule::ClipNorm&) {
  // The norm counts each element once: replicas hold the same gradients, so one of them speaks for all; so do copies on
  // the tensor axis. Losses are the same on all of it.
  double squares = 0;
  for (int b = 0; b < model_.param_blocks() && links_.first_replica; ++b) {
    const bool on_host = store_.on_host(ParamBlock{b}) != schedule::OnHost::nothing;
    squares += on_host ? squares_[static_cast<std::size_t>(b)] : counted_squares(ParamBlock{b}, compute_team_);
  }
  double sums[2] = {squares, loss_sum_};
  links_.control->sum(sums);
  if (links_.tensor_control != nullptr) links_.tensor_control->sum({sums, 1});
  result_.grad_norm = std::sqrt(sums[0]);
  result_.loss = sums[1] * microbatch(Microbatch{0}).loss_scale;
  result_.skipped = !std::isfinite(result_.grad_norm) || !std::isfinite(result_.loss);
  decision_ = {.skipped = result_.skipped,
               .numbers = optim::adamw_step(optimizer_, input_.lr, input_.updates + 1,
                                            optim::clip_factor(result_.grad_norm, optimizer_.clip_norm))};
}

void Executor::run(const schedule::Update& op) {
  if (decision_.skipped) return;
  const auto begin = Clock::now();
  const optim::AdamWState state{floats(store_.master(op.block)), floats(store_.first_moment(op.block)),
                                floats(store_.second_moment(op.block))};
  std::span<c10::BFloat16> compute;
  if (store_.compute() == DType::bf16) {
    at::Tensor& wire = store_.host_wire(op.block);
    compute = {wire.mutable_data_ptr<c10::BFloat16>(), static_cast<std::size_t>(wire.numel())};
  }
  optim::adamw(decision_.numbers, decay_[static_cast<std::size_t>(op.block.value)], floats(store_.gradient(op.block)),
               state, compute, team(op.on_host));
  if (!op.on_host) return;
  const std::scoped_lock lock(host_work_mutex_);
  host_work_.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  host_work_.bytes += Bytes{store_.master(op.block).numel() * (compute.empty() ? 28 : 30)};
}

}  // namespace trireme::executor
