// SPDX-License-Identifier: Apache-2.0
// The implementation of verbs, one function per verb.
#include "executor/verbs.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
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
  std::ranges::fill(block_squares_, 0);
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
    double of_block = 0;
    if (store_.on_host(block) != schedule::OnHost::nothing) {
      of_block = squares_[static_cast<std::size_t>(b)];
    } else if (gradient.is_cuda()) {
      of_block = of_device.const_data_ptr<double>()[b];
    } else {
      of_block = counted_squares(block, compute_team_);
    }
    squares += of_block;
    if (!block_squares_.empty()) block_squares_[block_places_[static_cast<std::size_t>(b)]] = of_block;
  }
  if (lanes_ == nullptr) return {squares, state_.losses.head.cross_entropy, state_.losses.head.z_loss};
  fetch_loss();
  record_idle();
  return {squares, state_.losses.head.cross_entropy, state_.losses.head.z_loss};
}

void Verbs::sum_blocks() {
  std::vector<double> sums = block_squares_;
  link(mesh::Group::dp, schedule::Lane::compute).sum(sums);
  for (const mesh::Group group : {mesh::Group::tensor, mesh::Group::pipeline})
    if (comm::Collectives* const others = links_.find({group, schedule::Lane::compute}); others != nullptr)
      others->sum(sums);
  std::ranges::transform(sums, std::back_inserter(state_.result.block_grad_norms),
                         [](double squares) { return std::sqrt(squares); });
}

void Verbs::run(const schedule::ClipNorm&) {
  const nn::Microbatch& first = microbatch(Microbatch{0});
  std::array<double, 3> sums = squares_and_losses();
  if (fault::point("loss.sum")) sums[1] = std::numeric_limits<double>::infinity();
  link(mesh::Group::dp, schedule::Lane::compute).sum({sums.data(), first.z_loss > 0 ? sums.size() : 2});
  if (comm::Collectives* const tensor = links_.find({mesh::Group::tensor, schedule::Lane::compute});
      tensor != nullptr) {
    // Tensor ranks have equal losses up to the order of sums on their GPUs. All compare the first one's to a limit.
    const bool compares = state_.input.spikes != nullptr;
    if (compares && tensor->rank() != 0) sums[1] = sums[2] = 0;
    tensor->sum({sums.data(), compares ? sums.size() : 1});
  }
  sum_over_pipeline(sums, first.z_loss > 0 ? sums.size() : 2);
  state_.result.grad_norm = std::sqrt(sums[0]);
  state_.result.loss = sums[1] * first.loss_scale;
  if (first.z_loss > 0) state_.result.z_loss = sums[2] * first.loss_scale;
  if (!block_squares_.empty()) sum_blocks();
  if (!state_.result.expert_tokens.empty()) sum_experts();
  if (model_.part.experts.ranks > 1) record_rows();
  if (!state_.input.counts) {  // a mean over no target
    state_.result.without_targets = true;
    state_.result.loss = std::numeric_limits<double>::quiet_NaN();
    if (first.z_loss > 0) state_.result.z_loss = state_.result.loss;
  }
  state_.result.spike =
      state_.input.spikes != nullptr && state_.input.spikes->is_spike(state_.result.loss, state_.result.grad_norm);
  state_.result.skipped =
      state_.result.spike || !std::isfinite(state_.result.grad_norm) || !std::isfinite(state_.result.loss);
  if (options_.balance_bias_rate > 0 && !state_.result.skipped) step_choice_biases();
  decision_ = {.skipped = state_.result.skipped,
               .lr = state_.input.lr,
               .count = state_.input.updates + 1,
               .gradient_factor = optim::clip_factor(state_.result.grad_norm, optimizer_.settings().clip_norm)};
}

}  // namespace trireme::executor
