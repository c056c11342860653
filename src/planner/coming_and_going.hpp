// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/planner/replay.hpp"

namespace trireme::planner {

/// Activations and gradient shards, which come and go, while the ops of a schedule run one after another.
class ComingAndGoing {
 public:
  /// kept: of gradient shards that stay. layout outlives this.
  ComingAndGoing(const schedule::Schedule& schedule, const shard::Layout& layout, Bytes kept);

  /// Goes past `op`, during which there are `activations` at most, and notes in `at_once` what both hold.
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
