// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/setup/supervision.hpp"
#include "trireme/model/model.hpp"
#include "trireme/schedule/op.hpp"

namespace trireme::train {

/// Names the ops of the step and reports each one as it begins, to supervision and to a failing rank's last message.
class OpWatch {
 public:
  /// supervision: outlives this.
  explicit OpWatch(Supervision& supervision) : supervision_(supervision) {}

  /// The job runs this schedule. Before its first step.
  void watch(const schedule::Schedule& schedule, const model::Model& model);
  /// The job's first step is step `first_step` (from 0) of the run.
  void begin(std::int64_t first_step) { first_step_ = first_step; }

  /// Op `op` begins in step `step` of the job, on the calling thread.
  void begins(int op, std::int64_t step);
  /// Whether it changes masters and moments.
  [[nodiscard]] bool updates(int op) const { return updates_[static_cast<std::size_t>(op)]; }
  [[nodiscard]] const std::string& text(int op) const { return texts_[static_cast<std::size_t>(op)]; }

 private:
  Supervision& supervision_;
  std::int64_t first_step_ = 0;
  std::vector<std::string> texts_;  ///< by op
  std::vector<bool> updates_;       ///< by op
  std::vector<bool> computes_;      ///< by op: on the compute lane, which is expected to move on
};

}  // namespace trireme::train
