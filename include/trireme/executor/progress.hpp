// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <stop_token>
#include <vector>

#include "trireme/schedule/needs.hpp"
#include "trireme/schedule/op.hpp"

namespace trireme::executor {

/// Progress of every op of a cyclic schedule on all lanes of this rank, and the
/// waiting lanes. Lock-free: a lane that has finished an op wakes only the lanes
/// that can continue, and checks its own needs without synchronizing with them.
/// A lane that slept for that on a shared core would return a time slice later.
class Progress {
 public:
  Progress(const schedule::Schedule& schedule, const std::vector<schedule::Need>& needs);

  /// Waits until op `op` may run in step `step`: its step is open and all its needs have ended. False if a stop was
  /// requested instead. One thread at a time for the ops of a lane.
  [[nodiscard]] bool wait(int op, std::int64_t step, const std::stop_token& stop);
  /// Whether `wait` would return at once.
  [[nodiscard]] bool ready(int op, std::int64_t step) const;
  /// Records that op `op` of step `step` has ended.
  void done(int op, std::int64_t step);

  /// Opens all steps up to `step`: lanes may run ahead into it as far as their needs allow.
  void open(std::int64_t step);
  /// Waits until every op of step `step` has ended. One thread at a time.
  void drain(std::int64_t step) { drain(step, all_); }
  /// The same for some of the ops. ops: lives as long as this.
  void drain(std::int64_t step, const std::vector<int>& ops);

 private:
  /// A thread that sleeps until `turn` changes. It publishes its op before it checks for the last time, and others
  /// publish the end of an op before they read it: one of the two sees the other.
  struct Waiter {
    std::atomic<int> op{-1};  ///< -1: none
    std::atomic<std::int64_t> step{-1};
    std::atomic<std::uint32_t> turn{0};
    void wake();
  };
  [[nodiscard]] bool drained(std::int64_t step, const std::vector<int>& ops) const;
  void wake_the_ready();

  std::vector<std::vector<schedule::Need>> into_;  ///< needs by the op that waits
  std::vector<schedule::Lane> lane_;               ///< by op
  std::vector<std::atomic<std::int64_t>> ended_;   ///< last step in which each op has ended; -1: none
  std::atomic<std::int64_t> open_ = -1;
  std::array<Waiter, schedule::lanes> waiters_;  ///< by lane
  std::vector<int> all_;
  Waiter drainer_;
  std::atomic<const std::vector<int>*> drained_ops_{&all_};  ///< stored before drainer_.step
};

}  // namespace trireme::executor
