// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/activation_store.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/device/copy.hpp"
#include "trireme/device/memory.hpp"

namespace trireme::store {
namespace {

/// A copy of `tensor` in the host's memory, made by the calling thread alone, or launched on its stream.
at::Tensor to_host(const at::Tensor& tensor) {
  const device::ChargeTo charge(device::Category::activations, device::Space::host);
  const at::TensorOptions options = tensor.options().device(at::kCPU).pinned_memory(tensor.is_cuda());
  at::Tensor out = at::empty(tensor.sizes(), options);
  if (tensor.is_cuda())
    out.copy_(tensor, /*non_blocking=*/true);
  else
    device::copy(tensor.const_data_ptr(), out.mutable_data_ptr(), Bytes{static_cast<std::int64_t>(tensor.nbytes())});
  return out;
}

/// The way back, to where `device` says.
at::Tensor to_device(const at::Tensor& tensor, at::Device device) {
  const device::ChargeTo charge(device::Category::activations);
  at::Tensor out = at::empty(tensor.sizes(), tensor.options().device(device).pinned_memory(false));
  if (device.is_cuda()) {
    out.copy_(tensor, /*non_blocking=*/true);
    // It is read, and freed, on the compute lane, the device's default stream: not to be reused here before that is
    // done.
    out.record_stream(c10::impl::VirtualGuardImpl(device.type()).getDefaultStream(device));
  } else {
    device::copy(tensor.const_data_ptr(), out.mutable_data_ptr(), Bytes{static_cast<std::int64_t>(tensor.nbytes())});
  }
  return out;
}

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

Bytes ActivationStore::offload(const Key& key, Bytes min_bytes) {
  Kept& kept = at(key);
  Bytes copied;
  for (const at::Tensor& tensor : kept.tensors) {
    const bool moves = tensor.is_contiguous() && static_cast<std::int64_t>(tensor.nbytes()) >= min_bytes.value;
    kept.on_host.push_back(moves ? to_host(tensor) : at::Tensor());
    if (!moves) continue;
    const Bytes bytes{static_cast<std::int64_t>(tensor.nbytes())};
    copied += bytes;
    if (tensor.is_cuda())
      kept.page_locked.emplace_back(device::Account{device::Category::activations, device::Space::host}, bytes);
  }
  return copied;
}

void ActivationStore::drop(const Key& key) {
  Kept& kept = at(key);
  for (std::size_t i = 0; i < kept.on_host.size(); ++i)
    if (kept.on_host[i].defined()) kept.tensors[i].reset();
}

Bytes ActivationStore::reload(const Key& key) {
  Kept& kept = at(key);
  Bytes copied;
  for (std::size_t i = 0; i < kept.on_host.size(); ++i) {
    if (!kept.on_host[i].defined()) continue;
    kept.tensors[i] = to_device(kept.on_host[i], device_);
    copied += Bytes{static_cast<std::int64_t>(kept.tensors[i].nbytes())};
    kept.on_host[i].reset();
  }
  kept.on_host.clear();
  kept.page_locked.clear();
  return copied;
}

}  // namespace trireme::store
