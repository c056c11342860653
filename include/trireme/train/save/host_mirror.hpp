// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <utility>

#include "trireme/store/parameter_store.hpp"

namespace trireme::train {

/// fp32 copies in the host's memory of tensors on a GPU or in bf16, to be read from and written to files. An fp32
/// tensor of the host is returned itself.
class HostMirror {
 public:
  /// Which copies are kept: all, for `put_back`, or the last one only.
  enum class Keeps { all, last };
  explicit HostMirror(Keeps keeps) : keeps_(keeps) {}

  /// Copy of `tensor`, which outlives this.
  [[nodiscard]] at::Tensor of(at::Tensor& tensor) {
    if (!tensor.is_cuda() && tensor.scalar_type() == at::kFloat) return tensor;
    const auto found = copies_.find(&tensor);
    if (found != copies_.end()) return found->second;
    forget();
    return copies_.emplace(&tensor, tensor.to(at::kCPU, at::kFloat)).first->second;
  }
  /// Split masters in fp32.
  [[nodiscard]] at::Tensor of_split_masters(store::ParameterStore& store, ParamBlock block) {
    const auto found = joined_.find(block);
    if (found != joined_.end()) return found->second;
    forget();
    return joined_.emplace(block, store.masters(block)).first->second;
  }
  /// Copies all requested tensors back; to bf16 rounded to nearest.
  void put_back(store::ParameterStore& store) {
    for (auto& [tensor, copy] : copies_) tensor->copy_(copy);
    for (auto& [block, copy] : joined_) store.put_masters(block, copy);
  }

 private:
  void forget() {
    if (keeps_ == Keeps::all) return;
    copies_.clear();
    joined_.clear();
  }

  Keeps keeps_;
  std::map<at::Tensor*, at::Tensor> copies_;
  std::map<ParamBlock, at::Tensor> joined_;
};

}  // namespace trireme::train
