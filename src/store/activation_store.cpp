// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/activation_store.hpp"

#include "trireme/base/error.hpp"

namespace trireme::store {

void ActivationStore::keep(const Key& key, std::vector<at::Tensor> tensors) {
  invariant(kept_.emplace(key, std::move(tensors)).second,
            "a stage's activations are kept once until its backward takes them");
}

std::vector<at::Tensor> ActivationStore::take(const Key& key) {
  auto node = kept_.extract(key);
  invariant(!node.empty(), "a backward finds what its forward kept");
  return std::move(node.mapped());
}

}  // namespace trireme::store
