// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "train/console/output.hpp"
#include "train/console/progress.hpp"
#include "train/console/summary.hpp"
#include "train/record/peaks.hpp"
#include "train/record/recorder.hpp"
#include "train/setup/environment.hpp"
#include "train/setup/op_watch.hpp"
#include "trireme/checkpoint/manifest.hpp"
#include "trireme/data/batch_reader.hpp"
#include "trireme/executor/executor.hpp"
#include "trireme/kernels/gemm.hpp"

namespace trireme::train {

/// A step that has ended, as this rank saw it.
struct TrainedStep {
  std::int64_t step = 0;  ///< from 0
  double lr = 0;
  double data_seconds = 0;
  double own_seconds = 0;  ///< without waiting for other ranks
  executor::StepResult result;
  std::optional<double> spike_score{};  ///< optimizer::SpikeWindow::score
  device::MemoryUse memory;
};

/// Output of a run while it trains: banner, rows of metrics, progress, warnings, peaks of memory.
class Reporter {
 public:
  /// All outlive this.
  Reporter(Job& job, const Environment& environment, const OpWatch& ops, Recorder& recorder, Output& output);

  /// The run begins at `state`, which has been loading since `load_began` (Unix time): prints the banner. train: the
  /// training files. Throws WriteError.
  void begin(const checkpoint::State& state, const data::Datasets& train, double load_began);
  /// Takes in every step. Collective over the world every some steps.
  void add(const TrainedStep& step);
  /// Takes in the time of every step; writes and shows a row if one is due. state: after the step.
  void report(const TrainedStep& step, const checkpoint::State& state, double step_seconds);
  void report(const EvalRow& row);
  /// Ends the current line; later output begins a new one.
  void finish_line() { progress_.finish(); }
  /// Prints the peaks of memory, after the last step.
  void print_peaks();
  /// Prints the results of the run and the next commands, after all other output. state: at the end.
  void print_summary(const checkpoint::State& state);

 private:
  [[nodiscard]] bool first_rank() const { return rank_ == 0; }

  Job& job_;
  const config::RunConfig& config_;
  const Environment& environment_;
  const OpWatch& ops_;
  Recorder& recorder_;
  Output& output_;
  int rank_;
  ProgressLine progress_;
  RunPeaks peaks_;
  BudgetWatch budget_;
  kernels::GemmChoice gemm_;
  std::string device_name_;  ///< GPU or CPU; of the first rank only
  RunTotals totals_;
  std::chrono::steady_clock::time_point begin_;
  std::int64_t first_step_ = 0;
  std::int64_t samples_ = 1;                    ///< of all training files
  std::optional<data::PackingCounts> packing_;  ///< of all training files, if they are packed
};

}  // namespace trireme::train
