// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/record/event_file.hpp"
#include "train/record/metrics.hpp"
#include "trireme/config/run_config.hpp"

namespace trireme::train {

/// The files in run.output that get every row: metrics.jsonl, and TensorBoard's events in tensorboard/ with
/// metrics.tensorboard. On one rank.
class RowFiles {
 public:
  /// Keeps the rows of the first `keep_steps` steps, if there are any. Throws WriteError.
  RowFiles(const config::RunConfig& config, std::int64_t keep_steps);
  /// Appends a row; unless writing fails, it has reached the files when the call returns. The first row of a step has
  /// every key that the run can write. Never throws: see LogFile.
  void append(const StepRow& row);
  void append(const EvalRow& row);
  /// Rows of metrics.jsonl for the first `keep_steps` steps.
  [[nodiscard]] const KeptLines& kept() const { return metrics_.kept(); }

 private:
  MetricsFile metrics_;
  LastWritten last_written_;
  bool evaluates_;
  bool choices_;
  std::vector<std::string> sets_;  ///< named validation sets
  std::optional<EventFile> events_;
};

}  // namespace trireme::train
