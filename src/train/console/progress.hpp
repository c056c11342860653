// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "train/console/output.hpp"
#include "train/record/metrics.hpp"

namespace trireme::train {

/// Shows the progress of training on standard output: one line that rewrites itself on a terminal, `key=value` lines
/// elsewhere.
class ProgressLine {
 public:
  /// output: outlives this. steps: of the whole run, for the time left. terminal: `rewrites_lines`.
  ProgressLine(Output& output, std::int64_t steps, bool terminal)
      : output_(output), steps_(steps), terminal_(terminal) {}

  void show(const StepRow& row);
  void show(const EvalRow& row);
  /// Ends the line on a terminal; what is printed next begins a line.
  void finish();

 private:
  Output& output_;
  std::int64_t steps_;
  bool terminal_;
  bool open_ = false;
  double smoothed_seconds_ = 0;
};

/// "step 120/500  loss 2.31  grad norm 0.82  12.3k tokens/s  3m 20s left".
[[nodiscard]] std::string terminal_line(const StepRow& row, std::int64_t steps, double seconds_left);
/// "step=120 loss=2.3101 grad_norm=0.8213 lr=0.0003 tokens_per_second=12345 step_seconds=0.664 epoch=0.24 steps=500
/// seconds_left=190", on one line. With experts, both have the load of the busiest one.
[[nodiscard]] std::string plain_line(const StepRow& row, std::int64_t steps, double seconds_left);
/// What a finished run that is started again prints. done: the finished steps, of `steps`.
[[nodiscard]] std::string nothing_to_do(std::int64_t done, std::int64_t steps);

}  // namespace trireme::train
