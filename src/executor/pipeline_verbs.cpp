// SPDX-License-Identifier: Apache-2.0
// The verbs of the pipeline axis.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

#include "executor/verbs.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/device/memory.hpp"

namespace trireme::executor {
namespace {

Bytes bytes_of(const at::Tensor& tensor) { return Bytes{static_cast<std::int64_t>(tensor.nbytes())}; }

}  // namespace

void Verbs::run(const schedule::Put& op) {
  at::Tensor& stream = values(op.microbatch).residual(op.phase);
  store_.send_buffer(op.slot).copy_(stream.reshape({-1}));
  stream.reset();
}

void Verbs::run(const schedule::Send& op) {
  if (fault::point("pipeline.send")) return;  // withheld
  const at::Tensor& slot = store_.send_buffer(op.slot);
  link(mesh::Group::pipeline, schedule::Lane::send).send(slot.const_data_ptr(), bytes_of(slot), op.peer);
}

void Verbs::run(const schedule::Receive& op) {
  const at::Tensor& slot = store_.receive_buffer(op.slot);
  link(mesh::Group::pipeline, schedule::Lane::receive).receive(slot.mutable_data_ptr(), bytes_of(slot), op.peer);
}

void Verbs::run(const schedule::Take& op) {
  (void)fault::point("pipeline.take");
  const device::ChargeTo charge(device::Category::workspace);
  at::Tensor& slot = store_.receive_buffer(op.slot);
  values(op.microbatch).residual(op.phase) = slot.view({-1, model_.sizes.hidden}).clone();
  if (options_.poison) slot.fill_(std::numeric_limits<float>::quiet_NaN());
}

void Verbs::record_idle() {
  const Idle idle = lanes_->idle();
  state_.result.exposed_seconds = idle.collectives;
  state_.result.pipeline_wait_seconds = state_.waited_for_pipeline = idle.pipeline;
}

void Verbs::sum_over_pipeline(std::array<double, 3>& sums, std::size_t count) {
  comm::Collectives* const pipeline = links_.find({mesh::Group::pipeline, schedule::Lane::compute});
  if (pipeline == nullptr) return;
  const auto so_far = [&] { return std::chrono::duration<double>(timeline::Clock::now() - state_.begin).count(); };
  std::array<double, 4> terms{so_far() - state_.waited_for_pipeline};  // seconds at work
  std::copy_n(sums.begin(), count, terms.begin() + 1);
  pipeline->sum({terms.data(), count + 1});
  std::copy_n(terms.begin() + 1, count, sums.begin());
  state_.result.pipeline_bubble = std::clamp(1 - terms[0] / (pipeline->size() * so_far()), 0.0, 1.0);
}

void Verbs::sum_tied(ParamBlock block) {
  const at::Tensor& gradient = store_.gradient(block);
  link(mesh::Group::tied, schedule::Lane::reduce, gradient)
      .all_reduce(gradient.mutable_data_ptr<float>(), gradient.numel(), DType::fp32);
}

}  // namespace trireme::executor
