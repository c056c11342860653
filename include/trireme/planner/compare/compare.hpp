// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/planner/time/predict.hpp"

/// Measurements of a run compared with the planner's predictions.
namespace trireme::planner {

/// Spans of a trace with the same verb and kind of block: "forward b*", "unshard head".
struct MeasuredOps {
  std::string lane;
  double count = 0;    ///< of one step
  double seconds = 0;  ///< of one step
};

/// One run: rank 0's last training row, medians over the rows after the first three, and a trace if there is one.
struct MeasuredRun {
  int ranks = 1;
  int rows = 0;  ///< behind the medians
  double step_seconds = 0, exposed_seconds = 0, data_seconds = 0;
  std::map<std::string, std::map<std::string, double>> memory;  ///< "device" and "host": bytes by category
  std::map<std::string, std::map<std::string, double>> bytes;   ///< by group and operation
  std::map<std::string, MeasuredOps> ops;                       ///< empty without a trace
};

/// metrics: the text of metrics.jsonl; trace: that of trace-rank0.json, empty if there is none. `name` identifies the
/// run in messages. Throws ConfigError for another kind of file, or one without a training row.
[[nodiscard]] MeasuredRun read_measured_run(std::string_view metrics, std::string_view trace, const std::string& name);

/// The kind of op that a span's name or a printed op belongs to.
[[nodiscard]] std::string kind_of_op(std::string_view op);

/// Memory by category, bytes by operation and, on a machine, times: predicted, measured, and the error (predicted over
/// measured - 1). `given`: the run's own, complete, `sync.policy` resolved.
[[nodiscard]] std::string compare(const config::RunConfig& given, const MeasuredRun& run,
                                  const std::optional<Machine>& machine);

}  // namespace trireme::planner
