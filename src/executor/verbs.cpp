// SPDX-License-Identifier: Apache-2.0
// The implementation of verbs, one function per verb.
#include "executor/verbs.hpp"

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "executor/arithmetic.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/device/buffer.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/optim/adamw.hpp"
#include "trireme/optim/device.hpp"
#include "trireme/optim/norm.hpp"
#include "trireme/schedule/access.hpp"
#include "trireme/schedule/buffers.hpp"

namespace trireme::executor {
namespace {

/// A recomputed block saves its input, and the decisions of its stages.
nn::Mode mode_that_keeps(model::Keep keep) {
  switch (keep) {
    case model::Keep::input: return nn::Mode::decide;
    case model::Keep::products: return nn::Mode::train;
    case model::Keep::all: return nn::Mode::train_keep_all;
    case model::Keep::kv_cache: break;
  }
  throw BugError("a forward of training keeps its input, its products or all");
}

}  // namespace

void Verbs::keep(const store::ActivationStore::Key& key, std::vector<at::Tensor> tensors) {
  for (const at::Tensor& tensor : tensors) device::charge_to(tensor, {device::Category::activations});
  activations_.keep(key, std::move(tensors));
}

void Verbs::run(const schedule::Unshard& op) {
  if (op.in_place) return;
  at::Tensor& whole = store_.parameter_buffer(op.block, op.slot);
  at::Tensor& shard = op.from     ? store_.group_copy(op.block)
                      : op.staged ? store_.upload_buffer(*op.staged)
                                  : store_.compute_shard(op.block);
  link(op.from ? mesh::Group::shard_group : shard::gathering_group(model_[op.block]), schedule::Lane::gather)
      .all_gather(shard.const_data_ptr(), whole.mutable_data_ptr(), shard.numel(), store_.compute());
}

void Verbs::run(const schedule::Reshard& op, const Operands& operands) {
  if (!operands.freed) return;  // the shard was used in place
  if (op.to) {
    at::Tensor& copy = store_.group_copy(op.block);
    const at::Tensor& whole = store_.parameter_buffer(op.block, *operands.freed);
    copy.copy_(
        whole.narrow(0, link(mesh::Group::shard_group, schedule::Lane::gather).rank() * copy.numel(), copy.numel()));
  }
  if (options_.poison)
    store_.parameter_buffer(op.block, *operands.freed).fill_(std::numeric_limits<float>::quiet_NaN());
}

void Verbs::run(const schedule::Forward& op, const Operands& operands) {
  const device::ChargeTo charge(device::Category::workspace);
  const nn::Mode mode = options_.mode == nn::Mode::train ? mode_that_keeps(op.keep) : options_.mode;
  if (const model::Stage* partitioned = schedule::partitioned_stage(model_, op.block, op.stage); partitioned != nullptr)
    return forward_partitioned(op, *partitioned, operands.stages.front(), mode);
  at::Tensor& residual = values(op.microbatch).residual(schedule::Phase::forward);
  for (const StageOperands& stage : operands.stages) {
    nn::Saved saved;
    const bool cached = caches(op, stage.kind);
    const store::ActivationStore::Key key{op.block, stage.stage, op.microbatch};
    if (cached) saved.tensors = activations_.take_any(key);
    at::Tensor input;
    if (op.keep == model::Keep::input && stage.stage.value == 0) input = residual;
    if (stage.kind == model::StageKind::moe) counts(op.block, op.microbatch).to.clear();
    const nn::Mode stage_mode = cached ? nn::Mode::generate : mode;
    nn::Result result =
        forward_whole({op.block, stage.stage, op.microbatch}, stage.parameters, std::move(residual), stage_mode, saved);
    residual = std::move(result.hidden);
    count_expert_tokens(op.block, result);
    if (stage.kind == model::StageKind::moe) counts(op.block, op.microbatch).to = std::move(result.expert_tokens);
    if (input.defined()) saved.tensors.insert(saved.tensors.begin(), std::move(input));
    if (cached || options_.mode == nn::Mode::train) keep(key, std::move(saved.tensors));
    if (options_.mode != nn::Mode::train) add_loss(result);
  }
  if (options_.mode != nn::Mode::train && operands.stages.back().kind == model::StageKind::head)
    finish_head(op.microbatch, std::move(residual));
}

void Verbs::finish_head(Microbatch m, at::Tensor output) {
  if (options_.mode == nn::Mode::infer)
    state_.result.logits = std::move(output);
  else
    finish_evaluation(m);
}

void Verbs::add_loss(const nn::Result& result) {
  state_.loss += result.loss;
  state_.result.balance_loss += result.balance_loss;
  state_.result.router_z_loss += result.router_z_loss;
  const auto add = [](at::Tensor& sum, const at::Tensor& term) {
    if (term.defined() && sum.defined())
      sum.add_(term);
    else if (term.defined())
      sum = term;
  };
  add(state_.device_loss, result.device_loss);
  add(state_.device_router_losses, result.device_router_losses);
}

void Verbs::fetch_loss() {
  const device::ChargeTo charge(device::Category::workspace);
  if (state_.device_router_losses.defined()) {
    const at::Tensor sums = device::on_host(state_.device_router_losses);
    state_.result.balance_loss += sums.const_data_ptr<double>()[0];
    state_.result.router_z_loss += sums.const_data_ptr<double>()[1];
  }
  if (!state_.device_loss.defined()) return;
  const at::Tensor sums = device::on_host(state_.device_loss);
  const auto* const of = sums.const_data_ptr<double>();
  state_.loss += {.cross_entropy = of[0], .z_loss = of[1]};
}

void Verbs::finish_evaluation(Microbatch m) {
  fetch_loss();
  state_.result.own_loss = state_.loss.cross_entropy;
  link(mesh::Group::dp, schedule::Lane::compute).sum({&state_.loss.cross_entropy, 1});
  state_.result.loss = state_.loss.cross_entropy * microbatch(m).loss_scale;
}

void Verbs::run(const schedule::Recompute& op, const Operands& operands) {
  const device::ChargeTo charge(device::Category::workspace);
  if (const model::Stage* partitioned = schedule::partitioned_stage(model_, op.block, op.stage); partitioned != nullptr)
    return recompute_partitioned(op, *partitioned, operands.stages.front());
  at::Tensor& residual = values(op.microbatch).residual(schedule::Phase::recompute);
  const auto last = static_cast<int>(model_[op.block].stages.size()) - 1;
  for (const StageOperands& stage : operands.stages) {
    const store::ActivationStore::Key key{op.block, stage.stage, op.microbatch};
    nn::Saved saved{activations_.take(key)};
    if (stage.stage.value == 0) {
      residual = std::move(saved.tensors.front());
      saved.tensors.erase(saved.tensors.begin());
    }
    const nn::Mode mode = stage.stage.value == last ? nn::Mode::rebuild : nn::Mode::train;
    nn::Result result = forward_whole(key, stage.parameters, std::move(residual), mode, saved);
    residual = std::move(result.hidden);
    keep(key, std::move(saved.tensors));
  }
}

void Verbs::run(const schedule::Backward& op, const Operands& operands) {
  const device::ChargeTo charge(device::Category::workspace);
  if (const model::Stage* partitioned = schedule::partitioned_stage(model_, op.block, op.stage); partitioned != nullptr)
    return backward_partitioned(op, *partitioned, operands);
  at::Tensor& d = values(op.microbatch).residual(schedule::Phase::backward);
  for (const StageOperands& stage : operands.stages) {
    nn::Saved saved{activations_.take({op.block, stage.stage, op.microbatch})};
    const nn::Stage& whole = *layer(op.block, stage.stage).whole;
    const bool input = op.part == schedule::BackwardPart::input;
    const auto until_then = input ? saved.tensors : std::vector<at::Tensor>();  // deferred weight gradients need them
    if (op.part == schedule::BackwardPart::weight) {
      whole.backward_weight(stage.gradients, saved);
      continue;
    }
    const nn::Microbatch m =
        microbatch_for(model_[op.block].stages[static_cast<std::size_t>(stage.stage.value)], op.block, op.microbatch);
    nn::Result result = input ? whole.backward_input(std::move(d), stage.parameters, m, saved)
                              : whole.backward(std::move(d), stage.parameters, stage.gradients, m, std::move(saved));
    d = std::move(result.hidden);
    add_loss(result);
    if (input) keep({op.block, stage.stage, op.microbatch}, std::move(saved.tensors));
  }
}

void Verbs::run(const schedule::ReduceScatter& op) {
  at::Tensor& whole = op.in_place ? store_.gradient(op.block) : store_.gradient_buffer(op.slot);
  if (fault::point("grad.reduce")) whole.narrow(0, 0, 1).fill_(std::numeric_limits<float>::quiet_NaN());
  if (op.in_place) return;
  at::Tensor shard = op.staged    ? store_.download_buffer(*op.staged)
                     : op.partial ? store_.partial(op.block)
                                  : store_.gradient(op.block);
  comm::Collectives& reduce = link(shard::gathering_group(model_[op.block]), schedule::Lane::reduce);
  if (options_.reduce != config::Reduce::bf16) {
    reduce.reduce_scatter(whole.const_data_ptr<float>(), shard.mutable_data_ptr<float>(), shard.numel(), reduce_wire(),
                          op.add);
    return;
  }
  at::Tensor sum = op.staged ? shard : store_.partial(op.block);
  reduce.reduce_scatter(whole.const_data_ptr<float>(), sum.mutable_data_ptr<float>(), sum.numel(), reduce_wire(),
                        false);
  round_to_bf16(sum);
  if (!op.partial && !op.staged) put(sum, shard, op.add);
}

void Verbs::run(const schedule::AllReduce& op) {
  at::Tensor sum = op.staged    ? store_.download_buffer(*op.staged)
                   : op.partial ? store_.partial(op.block)
                                : store_.gradient(op.block);
  link(mesh::Group::replicate, schedule::Lane::reduce, sum)
      .all_reduce(sum.mutable_data_ptr<float>(), sum.numel(), reduce_wire());
  if (op.partial) put(sum, store_.gradient(op.block), true);
}

double Verbs::counted_squares(ParamBlock block, const optim::Team& team) {
  double squares = 0;
  for (const shard::Range& range : counted_[static_cast<std::size_t>(block.value)])
    squares += optim::sum_of_squares(
        floats(store_.gradient(block))
            .subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.size())),
        team);
  return squares;
}

std::array<double, 3> Verbs::squares_and_losses() {
  // The norm counts each element once: replicas have equal gradients, so only the first counts; likewise copies on the
  // tensor axis, and the first of two pipeline ranks. Losses are equal on all of the tensor axis, and one pipeline rank
  // has them.
  double squares = 0;
  // Here, where it waits for every gradient: a GPU has launched its squares after them.
  const at::Tensor of_device = device_squares_.defined() ? device::on_host(device_squares_) : at::Tensor();
  for (int b = 0; b < model_.param_blocks() && options_.first_replica; ++b) {
    const ParamBlock block{b};
    if (model_[block].on_two_pipeline_ranks && !options_.first_pipeline_rank) continue;
    const at::Tensor& gradient = store_.gradient(block);
    if (store_.on_host(block) != schedule::OnHost::nothing) {
      squares += squares_[static_cast<std::size_t>(b)];
    } else if (gradient.is_cuda()) {
      squares += of_device.const_data_ptr<double>()[b];
    } else {
      squares += counted_squares(block, compute_team_);
    }
  }
  if (lanes_ == nullptr) return {squares, state_.loss.cross_entropy, state_.loss.z_loss};
  fetch_loss();
  record_idle();
  return {squares, state_.loss.cross_entropy, state_.loss.z_loss};
}

void Verbs::run(const schedule::ClipNorm&) {
  const nn::Microbatch& first = microbatch(Microbatch{0});
  std::array<double, 3> sums = squares_and_losses();
  if (fault::point("loss.sum")) sums[1] = std::numeric_limits<double>::infinity();
  link(mesh::Group::dp, schedule::Lane::compute).sum({sums.data(), first.z_loss > 0 ? sums.size() : 2});
  if (comm::Collectives* const tensor = links_.find({mesh::Group::tensor, schedule::Lane::compute}); tensor != nullptr)
    tensor->sum({sums.data(), 1});
  sum_over_pipeline(sums, first.z_loss > 0 ? sums.size() : 2);
  state_.result.grad_norm = std::sqrt(sums[0]);
  state_.result.loss = sums[1] * first.loss_scale;
  if (first.z_loss > 0) state_.result.z_loss = sums[2] * first.loss_scale;
  if (!state_.result.expert_tokens.empty()) sum_experts();
  if (model_.part.experts.ranks > 1) record_rows();
  if (!state_.input.counts) {  // a mean over no target
    state_.result.without_targets = true;
    state_.result.loss = std::numeric_limits<double>::quiet_NaN();
    if (first.z_loss > 0) state_.result.z_loss = state_.result.loss;
  }
  state_.result.skipped = !std::isfinite(state_.result.grad_norm) || !std::isfinite(state_.result.loss);
  if (options_.balance_bias_rate > 0 && !state_.result.skipped) step_choice_biases();
  decision_ = {.skipped = state_.result.skipped,
               .lr = state_.input.lr,
               .count = state_.input.updates + 1,
               .gradient_factor = optim::clip_factor(state_.result.grad_norm, optimizer_.settings().clip_norm)};
}

}  // namespace trireme::executor
