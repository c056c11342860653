// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <tuple>

#include "trireme/planner/replay.hpp"

namespace trireme::planner {

/// The activations of one rank while the ops of a schedule run one after another.
class Activations {
 public:
  Activations(const model::Model& model, const Sizing& sizing) : model_(model), sizing_(sizing) {}

  /// Goes past `op`; the most that is held while it runs.
  [[nodiscard]] Bytes most_during(const schedule::Op& op);

 private:
  using Key = std::tuple<int, int, int>;  ///< compute block, stage, microbatch

  void forward(const schedule::Forward& op);
  void recompute(const schedule::Recompute& op);
  void hold(const Key& key, Bytes bytes);
  [[nodiscard]] Bytes saved(const Key& key, model::Keep keep) const;
  [[nodiscard]] Bytes input() const;

  const model::Model& model_;
  const Sizing& sizing_;
  std::map<Key, Bytes> held_;
  Bytes total_;
};

}  // namespace trireme::planner
