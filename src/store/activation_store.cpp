// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/activation_store.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/device/buffer.hpp"
#include "trireme/device/copy.hpp"
#include "trireme/device/memory.hpp"

namespace trireme::store {
namespace {

Bytes size(const at::Tensor& tensor) { return {static_cast<std::int64_t>(tensor.nbytes())}; }

/// A copy of `tensor` in the host's memory, made by the calling thread alone, or launched on its stream into `landing`.
at::Tensor to_host(const at::Tensor& tensor, const at::Tensor& landing) {
  if (landing.defined()) {
    at::Tensor out = at::from_blob(landing.mutable_data_ptr(), tensor.sizes(), tensor.options().device(at::kCPU));
    out.copy_(tensor, /*non_blocking=*/true);
    return out;
  }
  const device::ChargeTo charge(device::Category::activations, device::Space::host);
  at::Tensor out = at::empty(tensor.sizes(), tensor.options());
  device::copy(tensor.const_data_ptr(), out.mutable_data_ptr(), size(tensor));
  return out;
}

/// The way back.
void to_device(const at::Tensor& from, const at::Tensor& to) {
  if (to.is_cuda())
    to.copy_(from, /*non_blocking=*/true);
  else
    device::copy(from.const_data_ptr(), to.mutable_data_ptr(), size(from));
}

/// Stream of the calling thread.
c10::Stream stream_here(at::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

}  // namespace

void ActivationStore::keep(const Key& key, std::vector<at::Tensor> tensors) {
  const std::scoped_lock lock(mutex_);
  invariant(kept_.emplace(key, Kept{std::move(tensors), {}, {}}).second,
            "a stage's activations are kept once until its backward takes them");
}

std::vector<at::Tensor> ActivationStore::take(const Key& key) {
  const std::scoped_lock lock(mutex_);
  auto node = kept_.extract(key);
  invariant(!node.empty(), "a backward finds what its forward kept");
  invariant(node.mapped().on_host.empty(), "a backward finds its activations on the device");
  return std::move(node.mapped().tensors);
}

std::vector<at::Tensor> ActivationStore::take_any(const Key& key) {
  const std::scoped_lock lock(mutex_);
  auto node = kept_.extract(key);
  return node.empty() ? std::vector<at::Tensor>() : std::move(node.mapped().tensors);
}

ActivationStore::Kept& ActivationStore::at(const Key& key) {
  const std::scoped_lock lock(mutex_);
  const auto found = kept_.find(key);
  invariant(found != kept_.end(), "activations are kept before they move");
  return found->second;
}

at::Tensor ActivationStore::take_landing(std::size_t bytes) {
  {
    const std::scoped_lock lock(mutex_);
    if (std::vector<Landing>& idle = landings_[bytes]; !idle.empty()) {
      Landing landing = std::move(idle.back());
      idle.pop_back();
      landing.read.block(stream_here(device_));
      return std::move(landing.memory);
    }
  }
  // libtorch's own page-locked memory is rounded to powers of two.
  return device::buffer(device::Category::activations, static_cast<std::int64_t>((bytes + 3) / 4), DType::fp32,
                        device::Space::host, device_);
}

void ActivationStore::give_landing(std::size_t bytes, at::Tensor memory) {
  c10::Event read(device_.type());
  read.record(stream_here(device_));
  const std::scoped_lock lock(mutex_);
  landings_[bytes].push_back({std::move(memory), std::move(read)});
}

Bytes ActivationStore::offload(const Key& key, Bytes min_bytes) {
  Kept& kept = at(key);
  Bytes copied;
  for (const at::Tensor& tensor : kept.tensors) {
    const bool moves = tensor.is_contiguous() && size(tensor) >= min_bytes;
    kept.landing.push_back(moves && tensor.is_cuda() ? take_landing(tensor.nbytes()) : at::Tensor());
    kept.on_host.push_back(moves ? to_host(tensor, kept.landing.back()) : at::Tensor());
    if (moves) copied += size(tensor);
  }
  return copied;
}

void ActivationStore::drop(const Key& key) {
  Kept& kept = at(key);
  for (std::size_t i = 0; i < kept.on_host.size(); ++i)
    if (kept.on_host[i].defined()) kept.tensors[i].reset();
}

void ActivationStore::allocate(const Key& key) {
  Kept& kept = at(key);
  const device::ChargeTo charge(device::Category::activations);
  for (std::size_t i = 0; i < kept.on_host.size(); ++i)
    if (const at::Tensor& there = kept.on_host[i]; there.defined())
      kept.tensors[i] = at::empty(there.sizes(), there.options().device(device_));
}

Bytes ActivationStore::reload(const Key& key) {
  Kept& kept = at(key);
  Bytes copied;
  for (std::size_t i = 0; i < kept.on_host.size(); ++i) {
    if (!kept.on_host[i].defined()) continue;
    invariant(kept.tensors[i].defined(), "activations have memory before they are reloaded");
    to_device(kept.on_host[i], kept.tensors[i]);
    copied += size(kept.tensors[i]);
    if (kept.landing[i].defined()) give_landing(kept.tensors[i].nbytes(), std::move(kept.landing[i]));
  }
  kept.on_host.clear();
  kept.landing.clear();
  return copied;
}

}  // namespace trireme::store
