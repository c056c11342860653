// SPDX-License-Identifier: Apache-2.0
// The norm of queries and keys over all heads, where it is a stage of its own: what it needs of other ranks' heads.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>

#include "executor/verbs.hpp"
#include "trireme/device/memory.hpp"

namespace trireme::executor {

void Verbs::leave_statistics(Block block, Stage projection, InFlight& of) const {
  const std::vector<nn::Layer>& stages = layers_.at(static_cast<std::size_t>(block.value));
  const auto next = static_cast<std::size_t>(projection.value) + 1;
  if (next < stages.size() && stages[next].qk_norm) of.statistics = stages[next].qk_norm->sums_of_squares(of.branch);
}

void Verbs::finish_norm_of_heads(const nn::Layer& layer, const std::vector<at::Tensor>& saved, InFlight& of) {
  layer.qk_norm->finish_backward(of.branch, of.statistics, saved);
  of.statistics.reset();
}

void Verbs::run(const schedule::AllReduceStatistics& op) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const device::ChargeTo charge(device::Category::workspace);
  InFlight& now = in_flight(op.microbatch);
  link(mesh::Group::tensor, schedule::Lane::tensor)
      .all_reduce(now.statistics.mutable_data_ptr<float>(), now.statistics.numel(), DType::fp32);
  if (op.phase != schedule::Phase::backward) return;
  const store::ActivationStore::Key key{op.block, op.stage, op.microbatch};
  std::vector<at::Tensor> saved = activations_.take(key);
  finish_norm_of_heads(layer(op.block, op.stage), saved, now);
  activations_.keep(key, std::move(saved));
}

}  // namespace trireme::executor
