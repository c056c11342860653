// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <utility>

namespace trireme::train {

/// Copies in the host's memory of tensors on a GPU, for who reads and writes files. A tensor of the host is its own.
class HostMirror {
 public:
  /// What lies in the host's memory for `tensor`, which outlives this: copied at the first call.
  [[nodiscard]] at::Tensor of(at::Tensor& tensor) {
    if (!tensor.is_cuda()) return tensor;
    const auto found = copies_.find(&tensor);
    if (found != copies_.end()) return found->second;
    return copies_.emplace(&tensor, tensor.to(at::kCPU)).first->second;
  }
  /// Copies everything that was asked for back to where it came from.
  void put_back() {
    for (auto& [tensor, copy] : copies_) tensor->copy_(copy);
  }

 private:
  std::map<at::Tensor*, at::Tensor> copies_;
};

}  // namespace trireme::train
