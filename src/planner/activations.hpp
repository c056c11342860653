// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "trireme/planner/replay.hpp"

namespace trireme::planner {

/// The activations of one rank while the ops of a schedule run one after another.
class Activations {
 public:
  Activations(const model::Model& model, const Sizing& sizing) : model_(model), sizing_(sizing) {}

  /// Goes past `op`; the most that is held while it runs.
  [[nodiscard]] Bytes most_during(const schedule::Op& op);
  [[nodiscard]] Bytes on_host() const { return on_host_; }
  /// What the offload or reload that was gone past last copies for a block and microbatch.
  [[nodiscard]] Bytes away(Block block, Microbatch m) const { return away_.at({block.value, m.value}); }

 private:
  using Key = std::tuple<int, int, int>;  ///< compute block, stage, microbatch

  void forward(const schedule::Forward& op);
  void recompute(const schedule::Recompute& op);
  void offload(const schedule::OffloadActivations& op);
  void drop(const schedule::DropActivations& op);
  void reload(const schedule::ReloadActivations& op);
  void hold(const Key& key, std::vector<Bytes> tensors);
  [[nodiscard]] std::vector<Bytes> saved(const Key& key, model::Keep keep) const;
  [[nodiscard]] Bytes input() const;

  const model::Model& model_;
  const Sizing& sizing_;
  std::map<Key, std::vector<Bytes>> held_;      ///< each tensor
  std::map<std::tuple<int, int>, Bytes> away_;  ///< of a block and microbatch: copied to the host
  Bytes total_, on_host_;
};

}  // namespace trireme::planner
