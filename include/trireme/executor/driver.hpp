// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "trireme/executor/progress.hpp"
#include "trireme/schedule/needs.hpp"
#include "trireme/schedule/op.hpp"

namespace trireme::executor {

/// Callbacks of a driver, on the thread of the op's lane.
struct Runner {
  /// Runs `ops` of a step, which count as one op for other lanes.
  std::function<void(std::span<const int> ops, std::int64_t step)> run;
  /// The ops of the compute lane that run together with `op`, in order; null: separately. Absent: every op is separate.
  std::function<const std::vector<int>*(int op, std::int64_t step)> together{};
  /// A lane's thread begins, before its first op.
  std::function<void()> on_thread{};
  /// A lane has finished its last op of a step: called before dependent ops continue.
  std::function<void(schedule::Lane lane, std::int64_t step)> on_lane_end{};
  /// An op threw an exception; called on its thread.
  std::function<void()> on_exception{};
};

/// Seconds of a step in which the compute lane had no work: waiting for other lanes, or doing their work where they
/// have no threads.
struct Idle {
  double collectives = 0;  ///< and all else that lanes do
  double pipeline = 0;     ///< messages between pipeline ranks
};

/// Whether a wait of the compute lane before this op (or running it inline) counts as waiting for a pipeline rank.
[[nodiscard]] bool waits_for_pipeline(const schedule::Op& op);

/// Drives the steps of a schedule: starts each op on its lane when its needs are met. Lanes are threads; the thread
/// that calls `run` is the compute lane. Independent of tensors and collectives: the runner does the work.
class Driver {
 public:
  /// lane_threads false: everything runs in the schedule's order on the calling thread. schedule outlives the driver.
  Driver(const schedule::Schedule& schedule, const std::vector<schedule::Need>& needs, bool lane_threads,
         Runner runner);

  /// Runs step `step`: 0, 1, ... `last`: returns when all lanes have ended it; else they run ahead into the next step
  /// as far as their needs allow.
  Idle run(std::int64_t step, bool last);
  /// Idle time of the current step so far. For the runner, on the compute lane.
  [[nodiscard]] const Idle& idle() const { return idle_; }
  /// Waits until these ops of the step have ended. ops: lives as long as the driver.
  void finish(std::int64_t step, const std::vector<int>& ops) { progress_.drain(step, ops); }

 private:
  [[nodiscard]] schedule::Lane lane(int op) const { return lane_[static_cast<std::size_t>(op)]; }
  void do_ops(std::span<const int> ops, std::int64_t step);
  void lane_loop(schedule::Lane lane, const std::stop_token& stop);

  std::vector<schedule::Lane> lane_;            ///< by op
  std::array<int, schedule::lanes> last_op_{};  ///< of each lane; -1: none
  std::vector<bool> of_pipeline_;               ///< by op: the compute lane waits for another pipeline rank
  bool lane_threads_;
  Idle idle_;
  Runner runner_;
  Progress progress_;
  std::vector<std::jthread> lanes_;  ///< last: they end before the members that they use
};

}  // namespace trireme::executor
