// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "train/console/output.hpp"
#include "train/record/metrics.hpp"

namespace trireme::train {

/// Display options of a run's progress.
struct ProgressOptions {
  std::int64_t steps = 0;      ///< of the whole run, for the time left
  std::int64_t log_every = 1;  ///< steps between lines elsewhere than on a terminal
  bool terminal = false;       ///< `rewrites_lines`
  int columns = 80;            ///< of the terminal
};

/// Times of a run that a line shows.
struct ProgressTimes {
  double elapsed = 0;  ///< seconds since the first step began
  double left = 0;     ///< seconds, estimated
};

/// Shows the progress of training on standard output: one line that rewrites itself on a terminal, `key=value` lines
/// elsewhere.
class ProgressLine {
 public:
  /// output: outlives this.
  ProgressLine(Output& output, const ProgressOptions& options) : output_(output), options_(options) {}

  /// Takes in every step, for the time left. Returns whether the step is shown: on a terminal ten times a second, else
  /// every `log_every` steps and once a minute; always the first, the last and skipped ones.
  [[nodiscard]] bool shows(std::int64_t finished_steps, double step_seconds, bool skipped);
  void show(const StepRow& row);
  void show(const EvalRow& row);
  /// Ends the line on a terminal; later output begins a new line.
  void finish() { output_.finish_line(); }

 private:
  Output& output_;
  ProgressOptions options_;
  double smoothed_seconds_ = 0;
  double elapsed_ = 0;
  std::chrono::steady_clock::time_point shown_{};
};

/// "step 120/500  loss 2.31  grad norm 0.82  12.3k tokens/s  1.2 GiB  MFU 41.2%  3 min 20 s left  [###---]", truncated
/// to `columns` by whole fields from the end. colors: the loss bold, the bar dim, SKIPPED yellow.
[[nodiscard]] std::string terminal_line(const StepRow& row, std::int64_t steps, const ProgressTimes& times, int columns,
                                        bool colors);
/// "step 120/500  eval loss 2.4012  web 2.2011  code 2.6013  640 tokens  0.25 s", whole. colors: the loss bold.
[[nodiscard]] std::string terminal_line(const EvalRow& row, std::int64_t steps, bool colors);
/// "step=120 loss=2.3101 grad_norm=0.8213 lr=0.0003 tokens_per_second=12345 step_seconds=0.664 epoch=0.24
/// memory=1.2GiB mfu=41.2% steps=500 time=0:01:20 left=0:03:10", on one line. memory: the highest of rank 0 if it
/// computes. With experts, both have the load of the busiest one.
[[nodiscard]] std::string plain_line(const StepRow& row, std::int64_t steps, const ProgressTimes& times);
/// Message of a finished run that is started again. done: the finished steps, of `steps`.
[[nodiscard]] std::string nothing_to_do(std::int64_t done, std::int64_t steps);

}  // namespace trireme::train
