// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace trireme::mpi {

/// How long a collective may wait for the other ranks, and what happens then.
struct Deadline {
  double timeout_seconds = 600;  ///< comm.timeout_seconds
  /// Called with one line that names the operation and the ranks it waits for. The default ends the job with exit
  /// code 7. Tests throw from it.
  std::function<void(const std::string& message)> on_hang{};
  /// Where to write the flight recorder as JSON before that, such as run.output/hang-rank3.json; "": this rank writes
  /// none.
  std::string dump_path{};
  /// Asked after the other ranks had time to write theirs, by the rank that prints the message: which did not, "rank 3
  /// on n2" ("": nobody). May be absent.
  std::function<std::string()> silent_ranks{};
  /// When any rank was last seen at work that others wait for without a collective that tells (files): asked when a
  /// deadline has passed, which then counts from there. May be absent. Any thread may call it.
  std::function<std::chrono::steady_clock::time_point()> last_progress{};

  /// Whether what waits, or has not moved, since then is overdue by now (`running_seconds`).
  [[nodiscard]] bool passed(std::chrono::steady_clock::time_point since) const;
};

}  // namespace trireme::mpi
