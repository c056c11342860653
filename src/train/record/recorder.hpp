// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "train/record/goodput_record.hpp"
#include "train/record/report_files.hpp"
#include "train/record/row_files.hpp"
#include "train/record/step_times.hpp"
#include "train/record/stragglers.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/timeline/kernels.hpp"
#include "trireme/timeline/timeline.hpp"
#include "trireme/train/engine/job.hpp"

namespace trireme::train {

/// Files of a run in run.output other than checkpoints: rows, traces, the memory snapshot, step times. After the start
/// no failure here ends the run: unwritten data wait for space (`LogFile`, `ReportFiles`).
class Recorder {
 public:
  /// Calls `work`, which writes files and flushes them: other ranks may wait for it. what, step: for messages.
  using WhileFilesAreWritten =
      std::function<void(const std::string& what, std::int64_t step, const std::function<void()>& work)>;

  /// Begins to record memory where a snapshot is requested: before the job allocates any. config and world outlive
  /// this.
  Recorder(const config::RunConfig& config, const mpi::Communicator& world, WhileFilesAreWritten while_written);

  /// The run begins with step `first_step` (from 0), whose state has been loading since `load_began` (Unix time): opens
  /// the rows and the record of goodput on the first rank. Collective over the world where steps are traced. Throws
  /// WriteError.
  void begin(std::int64_t first_step, double load_began);
  /// Whether an evaluation that was due after step `step` has its row. On the first rank; true if no rows are.
  [[nodiscard]] bool evaluated(std::int64_t step) const;

  /// Whether the lanes have to be idle after this step because a trace or snapshot is written.
  [[nodiscard]] bool rests_after(std::int64_t step) const { return traces(step) || snapshot_after(step); }
  /// A step begins. Kernels of a GPU are recorded from the first step that is traced to the last one in a row.
  void begin_step(const Job& job, std::int64_t step);
  /// Takes in a step that has ended. own_seconds: without waiting for other ranks; nothing for a step that warms up.
  /// Collective over the world every some steps.
  void add_step(Job& job, std::int64_t step, std::optional<double> own_seconds);
  /// On the first rank; elsewhere nothing.
  template <class Row>
  void append(const Row& row) {
    if (rows_) rows_->append(row);
  }
  /// Comparison of the nodes in the last window of steps.
  struct Nodes {
    double highest_ratio = 1;  ///< of a node's own part of a step to the median over nodes
    std::string stragglers;    ///< "n3, n7"; "" without any
  };
  /// On the first rank of a run on several nodes, after the first window; elsewhere nothing.
  [[nodiscard]] std::optional<Nodes> nodes() const;
  /// Nodes that were stragglers since the start of this attempt: "n3,n7"; "" without any, and on other ranks.
  [[nodiscard]] const std::string& stragglers() const { return stragglers_; }
  /// The record of goodput, on the first rank; elsewhere nullptr.
  [[nodiscard]] GoodputRecord* goodput() { return goodput_ ? &*goodput_ : nullptr; }
  /// The run ends, possibly between traced steps: writes their traces, every rank's step times, and the files that
  /// could not be written before. Collective over the world.
  void finish(Job& job);

 private:
  [[nodiscard]] bool traces(std::int64_t step) const;
  [[nodiscard]] bool snapshot_after(std::int64_t step) const;
  void take_spans(Job& job, std::int64_t step);
  void write_trace(Job& job);
  void end_recording();
  void write_snapshot(Job& job);
  /// Warns of a rank that all others wait for, and writes every rank's times. Collective over the world.
  void report_step_times();
  /// Scores the nodes by a window of steps. Collective over the world.
  void compare_nodes(const Job& job);
  /// Writes `text` as the file `name` of run.output. what: for messages.
  void write(const char* what, const std::string& name, std::string text);

  const config::RunConfig& config_;
  const mpi::Communicator& world_;
  WhileFilesAreWritten while_written_;
  std::int64_t first_step_ = 0;
  std::int64_t step_ = 0;                     ///< the last that ended, from 0
  timeline::Clock::time_point trace_origin_;  ///< the same moment on all ranks
  std::optional<RowFiles> rows_;              ///< on the first rank
  std::optional<GoodputRecord> goodput_;      ///< on the first rank
  ReportFiles reports_;
  std::vector<timeline::Span> spans_;
  bool unwritten_trace_ = false;
  std::optional<timeline::KernelRecording> recording_;
  std::vector<timeline::Kernel> kernels_;
  StepTimes step_times_;                   ///< since they were last reported
  std::vector<double> own_seconds_;        ///< of the window, on several nodes
  std::optional<StragglerScores> scores_;  ///< on the first rank, after the first window
  std::vector<std::string> node_names_;    ///< the same
  std::string stragglers_;
  bool recorded_;  ///< metrics.memory_snapshot: all of the memory's history is, until the snapshot is written
};

}  // namespace trireme::train
