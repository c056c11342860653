// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace trireme::mpi {

/// Limit of the time that a collective may wait for the other ranks, and the reaction.
struct Deadline {
  double timeout_seconds = 600;  ///< comm.timeout_seconds
  /// Called with one line that names the operation and the ranks it waits for. The default ends the job with exit
  /// code 7. Tests throw from it.
  std::function<void(const std::string& message)> on_hang{};
  /// Path of the flight recorder's JSON dump, written before that, such as run.output/hang-rank3.json; "": none on this
  /// rank.
  std::string dump_path{};
  /// Lists the ranks without a hang report, such as "rank 3 on n2", or "" if there are none. Called by the rank that
  /// prints the message, after the others had time to write. May be absent.
  std::function<std::string()> silent_ranks{};
  /// Time of the last progress of any rank in work without collectives (files). Called when a
  /// deadline has passed, which then restarts from that time. May be absent. Called from any thread.
  std::function<std::chrono::steady_clock::time_point()> last_progress{};

  /// Whether a wait or a period without progress that began at `since` is overdue (`running_seconds`).
  [[nodiscard]] bool passed(std::chrono::steady_clock::time_point since) const;
};

}  // namespace trireme::mpi
