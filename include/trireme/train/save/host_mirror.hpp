// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <utility>

#include "trireme/store/parameter_store.hpp"

namespace trireme::train {

/// Copies in the host's memory of tensors on a GPU, for who reads and writes files. A tensor of the host is its own.
class HostMirror {
 public:
  /// Copy in host memory of `tensor`, which outlives this: copied at the first call.
  [[nodiscard]] at::Tensor of(at::Tensor& tensor) {
    if (!tensor.is_cuda()) return tensor;
    const auto found = copies_.find(&tensor);
    if (found != copies_.end()) return found->second;
    return copies_.emplace(&tensor, tensor.to(at::kCPU)).first->second;
  }
  /// Split masters in fp32: joined at the first call.
  [[nodiscard]] at::Tensor of_split_masters(store::ParameterStore& store, ParamBlock block) {
    const auto found = joined_.find(block);
    if (found != joined_.end()) return found->second;
    return joined_.emplace(block, store.masters(block)).first->second;
  }
  /// Copies all requested tensors back.
  void put_back(store::ParameterStore& store) {
    for (auto& [tensor, copy] : copies_) tensor->copy_(copy);
    for (auto& [block, copy] : joined_) store.put_masters(block, copy);
  }

 private:
  std::map<at::Tensor*, at::Tensor> copies_;
  std::map<ParamBlock, at::Tensor> joined_;
};

}  // namespace trireme::train
