// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <tuple>
#include <vector>

#include "trireme/base/ids.hpp"

namespace trireme::store {

/// What stages keep between a forward and its backward.
class ActivationStore {
 public:
  /// Whose activations: one stage of one block in one microbatch.
  using Key = std::tuple<Block, Stage, Microbatch>;

  /// Keeps `tensors` for the backward of `key`. Throws BugError when something is kept there already.
  void keep(const Key& key, std::vector<at::Tensor> tensors);
  /// Gives them back and forgets them. Throws BugError when nothing is kept there.
  [[nodiscard]] std::vector<at::Tensor> take(const Key& key);
  [[nodiscard]] bool empty() const { return kept_.empty(); }

 private:
  std::map<Key, std::vector<at::Tensor>> kept_;
};

}  // namespace trireme::store
