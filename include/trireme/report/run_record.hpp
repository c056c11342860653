// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/run_config.hpp"
#include "trireme/report/goodput.hpp"

/// An HTML page of finished and running runs, from the files in their output directories.
namespace trireme::report {

struct Point {
  double x = 0, y = 0;
};
using Points = std::vector<Point>;

/// Own part of a step by rank, of step_times.json.
struct RankTimes {
  std::string name;
  double median_seconds = 0, p95_seconds = 0, max_seconds = 0;
};

/// One operation of a traced step.
struct Span {
  std::string lane, op;
  double begin = 0, end = 0;  ///< seconds from the step's first operation on any rank
};

/// The last traced step.
struct TracedStep {
  std::int64_t step = 0;
  std::map<std::string, std::vector<Span>> spans;  ///< by process: "rank 3 on node7"
  std::map<std::string, Points> memory;            ///< of the device of rank 0: bytes by category over seconds
};

/// Files that one run left in its run.output. Numbers are those of its files, not rounded.
struct RunRecord {
  std::string name;
  /// (step, number) by the key of metrics.jsonl, such as "loss" or "memory_peak_bytes/device/total"; rows without a
  /// finite number are left out.
  std::map<std::string, Points> series;
  std::string device, version;     ///< a GPU or CPU, and Trireme's version, of the last start; "" of earlier versions
  std::vector<double> starts;      ///< first steps of the starts after the first
  std::vector<double> skipped_at;  ///< the skipped steps
  std::int64_t skipped = 0, not_finite = 0;                           ///< steps that had targets
  std::int64_t spikes = 0;                                            ///< skipped steps of finite loss and norm
  std::int64_t without_targets = 0;                                   ///< steps, skipped as no target counted
  std::map<std::string, std::map<std::string, double>> bytes, calls;  ///< of a step: by group and operation
  std::vector<RankTimes> ranks;
  std::optional<Goodput> goodput;
  std::map<std::string, std::vector<double>> stragglers;  ///< by their nodes: steps of the rows that name them
  std::optional<TracedStep> trace;
  std::optional<config::RunConfig> config;
  std::vector<std::string> checkpoints;  ///< names, the oldest first
  std::vector<std::string> hang_reports;
};

/// Adds the rows of a metrics.jsonl to `run`. Throws ConfigError naming `file` when it is none or holds no step.
void read_metrics(RunRecord& run, std::string_view text, const std::string& file);
/// Adds one rank's trace to `run`, all ranks' being of the same steps. first: of rank 0, whose memory is shown.
void read_trace(RunRecord& run, std::string_view text, const std::string& file, bool first);
/// Adds step_times.json to `run`.
void read_step_times(RunRecord& run, std::string_view text, const std::string& file);

/// The record of the run that wrote to `directory`. Throws ConfigError when it holds no metrics.jsonl; other files may
/// be absent.
[[nodiscard]] RunRecord read_run(const std::string& directory);

/// The files that `read_run` reads, whether or not they are there.
[[nodiscard]] std::vector<std::string> files_of_run(const std::string& directory);

}  // namespace trireme::report
