// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/planner/replay.hpp"

namespace trireme::planner {

/// Memory of activations and transient gradient shards, while the ops of a schedule run one after another.
class ComingAndGoing {
 public:
  /// kept: of gradient shards that stay. layout outlives this.
  ComingAndGoing(const schedule::Schedule& schedule, const shard::Layout& layout, Bytes kept);

  /// Advances over `op`, during which activations take at most `activations`; updates `at_once` with the sum of both.
  void during(const schedule::Op& op, Bytes activations, AtOnce& at_once);
  /// Gradient shards at most, those that stay among them.
  [[nodiscard]] Bytes most_gradients() const { return most_gradients_; }

 private:
  [[nodiscard]] Bytes bytes(ParamBlock block) const { return {4 * layout_[block].shard_elements()}; }

  const shard::Layout& layout_;
  Bytes gradients_, most_gradients_, most_activations_;
  int op_ = 0;
};

}  // namespace trireme::planner
