// SPDX-License-Identifier: Apache-2.0
#include "cli/start/file_progress.hpp"

#include <chrono>
#include <memory>
#include <utility>

#include "trireme/supervise/heartbeat.hpp"

namespace trireme::cli {
namespace {

/// Calls `report` while files are read or written, at most eight times in `timeout_seconds`.
class WatchedFiles {
 public:
  WatchedFiles(double timeout_seconds, const std::function<void()>& report)
      : heartbeat_("", timeout_seconds, 0),
        work_(heartbeat_, [report, pause = std::chrono::duration<double>(timeout_seconds / 8),
                           reported = supervise::Heartbeat::Clock::now()]() mutable {
          if (supervise::Heartbeat::Clock::now() - reported < pause) return;
          reported = supervise::Heartbeat::Clock::now();
          report();
        }) {}

 private:
  supervise::Heartbeat heartbeat_;
  supervise::FileWork work_;
};

}  // namespace

mpi::Progress file_progress(double timeout_seconds, std::function<void()> mark) {
  return {.mark = std::move(mark), .watch = [timeout_seconds](std::function<void()> report) -> std::shared_ptr<void> {
            return std::make_shared<WatchedFiles>(timeout_seconds, report);
          }};
}

}  // namespace trireme::cli
