// SPDX-License-Identifier: Apache-2.0
// Verbs that copy between device and host, and updates; one function per verb. Only SumSquares and Update use more
// threads than their lane's.
#include <ATen/core/Tensor.h>

#include <chrono>
#include <mutex>

#include "executor/arithmetic.hpp"
#include "executor/verbs.hpp"
#include "trireme/device/buffer.hpp"
#include "trireme/device/copy.hpp"
#include "trireme/optim/adamw.hpp"
#include "trireme/optim/device.hpp"
#include "trireme/optim/norm.hpp"
#include "trireme/store/masters.hpp"

namespace trireme::executor {
namespace {

Bytes size(const at::Tensor& tensor) { return {static_cast<std::int64_t>(tensor.nbytes())}; }

template <class T>
std::span<T> span_of(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<T>(), static_cast<std::size_t>(tensor.numel())};
}

/// Calls `each` for the saved tensors of a block in one microbatch, stage by stage.
template <class Each>
void each_stage(const model::Model& model, Block block, Microbatch microbatch, Each each) {
  for (int s = 0; s < static_cast<int>(model[block].stages.size()); ++s)
    each(store::ActivationStore::Key{block, Stage{s}, microbatch});
}

}  // namespace

Bytes Verbs::run(const schedule::Upload& op) {
  const at::Tensor& from = store_.host_compute_shard(op.block);
  at::Tensor& to = op.staged ? store_.upload_buffer(*op.staged) : store_.compute_shard(op.block);
  if (to.is_cuda())
    to.copy_(from, /*non_blocking=*/true);
  else
    device::copy(from.const_data_ptr(), to.mutable_data_ptr(), size(from));
  return size(from);
}

Bytes Verbs::run(const schedule::OffloadGradient& op) {
  at::Tensor& from = store_.download_buffer(op.slot);
  at::Tensor& to = store_.gradient(op.block);
  if (from.is_cuda())
    offload_from_gpu(from, to, op.add);
  else if (op.add)
    device::add_to_host(floats(from), floats(to));
  else
    device::copy(from.const_data_ptr(), to.mutable_data_ptr(), size(from));
  return size(from);
}

void Verbs::offload_from_gpu(const at::Tensor& from, const at::Tensor& to, bool add) {
  if (!add) {
    to.copy_(from, /*non_blocking=*/true);
    return;
  }
  if (!landing_.defined() || landing_.numel() < from.numel())
    landing_ = device::buffer(device::Category::gradients_sharded, from.numel(), DType::fp32, device::Space::host,
                              options_.device);
  const at::Tensor landed = landing_.narrow(0, 0, from.numel());
  landed.copy_(from);  // synchronous: this lane's thread adds, no other thread waits
  device::add_to_host(floats(landed), floats(to));
}

void Verbs::run(const schedule::SumSquares& op) {
  squares_[static_cast<std::size_t>(op.block.value)] = counted_squares(op.block, team(true));
}

Bytes Verbs::run(const schedule::OffloadActivations& op) {
  Bytes copied;
  each_stage(model_, op.block, op.microbatch,
             [&](const auto& key) { copied += activations_.offload(key, op.min_bytes); });
  return copied;
}

void Verbs::run(const schedule::DropActivations& op) {
  each_stage(model_, op.block, op.microbatch, [&](const auto& key) { activations_.drop(key); });
}

void Verbs::run(const schedule::AllocateActivations& op) {
  each_stage(model_, op.block, op.microbatch, [&](const auto& key) { activations_.allocate(key); });
}

Bytes Verbs::run(const schedule::ReloadActivations& op) {
  Bytes copied;
  each_stage(model_, op.block, op.microbatch, [&](const auto& key) { copied += activations_.reload(key); });
  return copied;
}

optim::AdamWStep Verbs::update_numbers() const {
  return optim::adamw_step(optimizer_, decision_.lr, decision_.count, decision_.gradient_factor);
}

void Verbs::update_on_device(ParamBlock block) {
  const at::Tensor compute = store_.compute() == DType::bf16 ? store_.host_compute_shard(block) : at::Tensor();
  optim::adamw(update_numbers(), update_ranges_[static_cast<std::size_t>(block.value)], store_.gradient(block),
               optim::DeviceState{.master = store_.master(block),
                                  .m = store_.state(block, 0),
                                  .v = store_.state(block, 1),
                                  .remainder = store_.remainder(block)},
               compute);
  store_.put_choice_bias(block);
}

void Verbs::update_on_cpu(ParamBlock block, const optim::Team& team) {
  const std::span<const optimizer::UpdateRange> ranges = update_ranges_[static_cast<std::size_t>(block.value)];
  const std::span<const float> gradient = floats(store_.gradient(block));
  std::span<c10::BFloat16> compute;
  if (store_.compute() == DType::bf16) compute = span_of<c10::BFloat16>(store_.host_compute_shard(block));
  const auto update = [&]<class Moment>(std::span<Moment> m, std::span<Moment> v) {
    if (store_.split_masters())
      optim::adamw(update_numbers(), ranges, gradient,
                   optim::SplitAdamWStateIn<Moment>{compute, store::words(store_.remainder(block)), m, v}, team);
    else
      optim::adamw(update_numbers(), ranges, gradient, optim::AdamWStateIn<Moment>{floats(store_.master(block)), m, v},
                   compute, team);
  };
  const at::Tensor &m = store_.state(block, 0), &v = store_.state(block, 1);
  if (m.scalar_type() == at::kBFloat16)
    update(span_of<c10::BFloat16>(m), span_of<c10::BFloat16>(v));
  else
    update(floats(m), floats(v));
}

void Verbs::apply_matrices(ParamBlock block, int slot, const optim::Team& team) {
  optim::MuonMasters masters{.master = {}, .compute = {}, .remainder = {}};
  if (store_.compute() == DType::bf16) masters.compute = span_of<c10::BFloat16>(store_.host_compute_shard(block));
  if (store_.split_masters())
    masters.remainder = store::words(store_.remainder(block));
  else
    masters.master = floats(store_.master(block));
  optim::apply_matrices(muon_numbers(), matrices_->ranges(block), store_.matrix_pieces(slot), masters, team);
}

void Verbs::run(const schedule::Update& op) {
  if (decision_.skipped) return;
  if (op.matrices) apply_matrices(op.block, *op.matrices, team(op.on_host));
  if (store_.gradient(op.block).is_cuda()) return update_on_device(op.block);
  const auto begin = timeline::Clock::now();
  update_on_cpu(op.block, team(op.on_host));
  store_.put_choice_bias(op.block);
  if (!op.on_host) return;
  const std::scoped_lock lock(host_work_mutex_);
  host_work_.seconds += std::chrono::duration<double>(timeline::Clock::now() - begin).count();
  const std::int64_t elements = store_.gradient(op.block).numel();
  const bool rounds = store_.compute() == DType::bf16 && !store_.split_masters();
  host_work_.bytes +=
      optim::adamw_traffic(elements, optimizer_.state_bytes(model_[op.block], store_.layout()[op.block]), rounds);
}

}  // namespace trireme::executor
