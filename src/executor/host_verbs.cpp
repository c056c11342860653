// SPDX-License-Identifier: Apache-2.0
// What the verbs between device and host do, one function a verb. None of them but SumSquares uses more threads than
// its lane's own.
#include <ATen/core/Tensor.h>

#include "trireme/device/copy.hpp"
#include "trireme/executor/executor.hpp"
#include "trireme/optim/norm.hpp"

namespace trireme::executor {
namespace {

Bytes size(const at::Tensor& tensor) { return {static_cast<std::int64_t>(tensor.nbytes())}; }

std::span<float> floats(at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

/// What one block keeps in one microbatch, stage by stage.
template <class Each>
void each_stage(const model::Model& model, Block block, Microbatch microbatch, Each each) {
  for (int s = 0; s < static_cast<int>(model[block].stages.size()); ++s)
    each(store::ActivationStore::Key{block, Stage{s}, microbatch});
}

}  // namespace

Bytes Executor::run(const schedule::Upload& op) {
  const at::Tensor& from = store_.host_wire(op.block);
  at::Tensor& to = op.staged ? store_.upload_buffer(*op.staged) : store_.wire(op.block);
  device::copy(from.const_data_ptr(), to.mutable_data_ptr(), size(from));
  return size(from);
}

Bytes Executor::run(const schedule::OffloadGradient& op) {
  at::Tensor& from = store_.download_buffer(op.slot);
  at::Tensor& to = store_.gradient(op.block);
  if (op.add)
    device::add_to_host(floats(from), floats(to));
  else
    device::copy(from.const_data_ptr(), to.mutable_data_ptr(), size(from));
  return size(from);
}

void Executor::run(const schedule::SumSquares& op) {
  squares_[static_cast<std::size_t>(op.block.value)] = counted_squares(op.block, team(true));
}

Bytes Executor::run(const schedule::OffloadActivations& op) {
  Bytes copied;
  each_stage(model_, op.block, op.microbatch,
             [&](const auto& key) { copied += activations_.offload(key, op.min_bytes); });
  return copied;
}

void Executor::run(const schedule::DropActivations& op) {
  each_stage(model_, op.block, op.microbatch, [&](const auto& key) { activations_.drop(key); });
}

Bytes Executor::run(const schedule::ReloadActivations& op) {
  Bytes copied;
  each_stage(model_, op.block, op.microbatch, [&](const auto& key) { copied += activations_.reload(key); });
  return copied;
}

}  // namespace trireme::executor
