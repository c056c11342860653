// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stop_token>
#include <vector>

#include "trireme/schedule/needs.hpp"

namespace trireme::executor {

/// How far every op of a cyclic schedule has come, over all lanes of this rank, and who waits for whom.
class Progress {
 public:
  Progress(int ops, const std::vector<schedule::Need>& needs);

  /// Waits until op `op` may run in step `step`: its step is open and all it needs has ended. False when asked to stop
  /// instead.
  [[nodiscard]] bool wait(int op, std::int64_t step, const std::stop_token& stop);
  /// Whether `wait` would return at once.
  [[nodiscard]] bool ready(int op, std::int64_t step);
  /// Says that op `op` of step `step` has ended.
  void done(int op, std::int64_t step);

  /// Opens all steps up to `step`: lanes may run ahead into it as far as their needs allow.
  void open(std::int64_t step);
  /// Waits until every op of step `step` has ended.
  void drain(std::int64_t step);

 private:
  [[nodiscard]] bool ready_locked(int op, std::int64_t step) const;

  std::vector<std::vector<schedule::Need>> into_;  ///< needs by the op that waits
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<std::int64_t> ended_;  ///< last step in which each op has ended; -1: none
  std::int64_t open_ = -1;
};

}  // namespace trireme::executor
