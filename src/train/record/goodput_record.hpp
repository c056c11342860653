// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "train/record/log_file.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/report/goodput.hpp"

namespace trireme::train {

/// Appends the events of this attempt to run.output/goodput.jsonl, and computes the goodput of all attempts so far. On
/// one rank.
class GoodputRecord {
 public:
  /// load_began: Unix time; loaded: the steps of the state that was loaded then. before: the last row of metrics.jsonl
  /// before it was cut back. Continues the record of a run that resumes or begins again, else empties it. Throws
  /// WriteError; an unreadable record is a warning.
  GoodputRecord(const config::RunConfig& config, double load_began, std::int64_t loaded, report::LastStep before);

  /// A save or an evaluation has ended at `step`.
  void took(report::GoodputEvent::Kind kind, std::int64_t step, double seconds);
  /// A step has ended. step: finished ones.
  void step_ended(std::int64_t step);
  /// The attempt ends in order.
  void end();

  /// Goodput of all attempts, until now.
  [[nodiscard]] report::Goodput now() const;

 private:
  void append(const report::GoodputEvent& event);

  LogFile file_;
  bool cut_off_ = false;  ///< the last line of the file has no end
  report::GoodputClock clock_;
  std::int64_t repeats_until_ = 0;  ///< an earlier attempt has finished so many steps
  std::int64_t step_ = 0;
  double last_activity_ = 0;  ///< Unix time, when a step, save or evaluation ended
};

}  // namespace trireme::train
