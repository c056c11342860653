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

/// How far every op of a cyclic schedule has come, over all lanes of this rank, and who waits for whom. Without a lock:
/// a lane that has ended an op wakes the lanes that can continue now, no others, and finds out whether it can continue
/// itself without meeting them. Where lanes share a core, one that had to sleep for that would come back a time slice
/// later.
class Progress {
 public:
  Progress(const schedule::Schedule& schedule, const std::vector<schedule::Need>& needs);

  /// Waits until op `op` may run in step `step`: its step is open and all it needs has ended. False when asked to stop
  /// instead. One thread at a time for the ops of a lane.
  [[nodiscard]] bool wait(int op, std::int64_t step, const std::stop_token& stop);
  /// Whether `wait` would return at once.
  [[nodiscard]] bool ready(int op, std::int64_t step) const;
  /// Says that op `op` of step `step` has ended.
  void done(int op, std::int64_t step);

  /// Opens all steps up to `step`: lanes may run ahead into it as far as their needs allow.
  void open(std::int64_t step);
  /// Waits until every op of step `step` has ended. One thread at a time.
  void drain(std::int64_t step) { drain(step, all_); }
  /// The same for some of the ops. ops: lives as long as this.
  void drain(std::int64_t step, const std::vector<int>& ops);

 private:
  /// A thread that sleeps until `turn` moves. What it waits for is said before it looks for the last time, and read by
  /// others after they have said what ended: one of the two sees the other.
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
  std::atomic<const std::vector<int>*> drained_ops_{&all_};  ///< said before drainer_.step
};

}  // namespace trireme::executor
