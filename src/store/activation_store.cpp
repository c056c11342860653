// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/activation_store.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/device/copy.hpp"
#include "trireme/device/memory.hpp"

namespace trireme::store {
namespace {

/// A copy of `tensor` in `space`, made by the calling thread alone.
at::Tensor copy_in(const at::Tensor& tensor, device::Space space) {
  const device::ChargeTo charge(device::Category::activations, space);
  at::Tensor out = at::empty(tensor.sizes(), tensor.options());
  device::copy(tensor.const_data_ptr(), out.mutable_data_ptr(), Bytes{static_cast<std::int64_t>(tensor.nbytes())});
  return out;
}

}  // namespace

void ActivationStore::keep(const Key& key, std::vector<at::Tensor> tensors) {
  const std::scoped_lock lock(mutex_);
  invariant(kept_.emplace(key, Kept{std::move(tensors), {}}).second,
            "a stage's activations are kept once until its backward takes them");
}

std::vector<at::Tensor> ActivationStore::take(const Key& key) {
  const std::scoped_lock lock(mutex_);
  auto node = kept_.extract(key);
  invariant(!node.empty(), "a backward finds what its forward kept");
  invariant(node.mapped().on_host.empty(), "a backward finds its activations on the device");
  return std::move(node.mapped().tensors);
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
    kept.on_host.push_back(moves ? copy_in(tensor, device::Space::host) : at::Tensor());
    if (moves) copied += Bytes{static_cast<std::int64_t>(tensor.nbytes())};
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
    kept.tensors[i] = copy_in(kept.on_host[i], device::Space::device);
    copied += Bytes{static_cast<std::int64_t>(kept.tensors[i].nbytes())};
    kept.on_host[i].reset();
  }
  kept.on_host.clear();
  return copied;
}

}  // namespace trireme::store
