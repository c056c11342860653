// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "trireme/model/activations.hpp"
#include "trireme/planner/replay.hpp"
#include "trireme/schedule/concerns.hpp"

namespace trireme::planner {

/// The activations of one rank while the ops of a schedule run one after another.
class Activations {
 public:
  Activations(const model::Model& model, const ReplayOptions& replay_options)
      : model_(model), replay_options_(replay_options) {}

  /// Advances over `op`; returns the highest memory during it.
  [[nodiscard]] Bytes most_during(const schedule::Op& op);
  [[nodiscard]] Bytes on_host() const { return on_host_; }
  /// Bytes copied by the latest offload or reload of a block and microbatch.
  [[nodiscard]] Bytes away(Block block, Microbatch m) const { return away_.at({block.value, m.value}); }

 private:
  using Key = std::tuple<int, int, int>;  ///< compute block, stage, microbatch

  // The most that is held during each verb that is of a microbatch.
  [[nodiscard]] Bytes during(const schedule::Forward& op);
  [[nodiscard]] Bytes during(const schedule::Recompute& op);
  [[nodiscard]] Bytes during(const schedule::Backward& op);
  [[nodiscard]] Bytes during(const schedule::OffloadActivations& op);
  [[nodiscard]] Bytes during(const schedule::DropActivations& op);
  [[nodiscard]] Bytes during(const schedule::AllocateActivations& op);
  [[nodiscard]] Bytes during(const schedule::ReloadActivations& op);
  // Nothing is kept.
  [[nodiscard]] Bytes during(const schedule::Rebuild&) { return total_; }
  [[nodiscard]] Bytes during(const schedule::Exchanged&) { return total_; }
  // Copies between the stream and slots, which are charged as a ring.
  [[nodiscard]] Bytes during(const schedule::Put&) { return total_; }
  [[nodiscard]] Bytes during(const schedule::Send&) { return total_; }
  [[nodiscard]] Bytes during(const schedule::Receive&) { return total_; }
  [[nodiscard]] Bytes during(const schedule::Take&) { return total_; }
  template <class Other>
  requires(!schedule::of_microbatch<Other>) [[nodiscard]] Bytes during(const Other&) { return total_; }
  void hold(const Key& key, std::vector<Bytes> tensors);
  [[nodiscard]] const model::Stage& stage_of(const Key& key) const;
  [[nodiscard]] model::Counts counts_of(const Key& key) const;
  [[nodiscard]] const std::vector<model::TensorSpec>& kept_tensors(const model::Stage& stage);
  [[nodiscard]] std::vector<Bytes> saved(const Key& key, model::Keep keep);
  [[nodiscard]] Bytes input() const;

  const model::Model& model_;
  const ReplayOptions& replay_options_;
  std::map<int, std::vector<model::TensorSpec>> kept_tensors_;  ///< by kind of stage
  std::map<Key, std::vector<Bytes>> held_;                      ///< each tensor
  std::map<Key, model::Keep> keep_;                             ///< Keep of each stage
  std::map<std::tuple<int, int>, Bytes> away_;                  ///< of a block and microbatch: copied to the host
  Bytes total_, on_host_;
};

}  // namespace trireme::planner
