// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "train/console/output.hpp"
#include "train/setup/supervision.hpp"
#include "trireme/huggingface/huggingface.hpp"
#include "trireme/supervise/time_limit.hpp"
#include "trireme/train/engine/job.hpp"
#include "trireme/train/save/checkpointing.hpp"

namespace trireme::train {

/// Saves checkpoints and exports. Both are work on files, which is supervised; the first rank prints their results.
/// Everything is collective over the job, with idle lanes.
class Saver {
 public:
  /// job, supervision and output outlive this. threads: of a rank, on which bits depend.
  Saver(Job& job, Supervision& supervision, int threads, Output& output);

  /// Fills the job: see `Checkpointing::begin`. With run.export = "every_checkpoint" an export of the checkpoint that
  /// is missing is written, and a warning names those of older ones.
  [[nodiscard]] checkpoint::State begin();
  /// Whether a checkpoint is due after step `step` (from 0).
  [[nodiscard]] bool due_after(std::int64_t step) const { return checkpoints_.due_after(step); }
  /// Prints the result of a finished background save. Not collective.
  void print_news();

  /// Saves a checkpoint, and exports the weights where every checkpoint is exported. last: see `Checkpointing::save`.
  /// Returns how long both took. A failed export is an error line.
  supervise::Durations save(const checkpoint::State& state, bool last);
  /// Saves `state` while a step runs that has not updated anything: see `Checkpointing::save_in_step`. On a thread of
  /// its own, while the training does nothing here. A failure is an error line.
  void save_in_step(const checkpoint::State& state);
  /// An evaluation at `state` has this loss: see `Checkpointing::offer_best`.
  void offer_best(const checkpoint::State& state, const checkpoint::Best& offered);
  /// Exports the weights at the end of the run, where the run file requests it.
  void export_at_end(const checkpoint::State& state);
  /// Waits for the save in progress. Throws WriteError when the newest one failed.
  void finish(const checkpoint::State& state);

 private:
  void export_to(const std::string& directory, const checkpoint::State& state);
  /// The same as run.export = "every_checkpoint" does; a failure is an error line.
  void try_export(const checkpoint::State& state);
  void export_missing(const checkpoint::State& loaded);
  [[nodiscard]] std::string export_directory(std::int64_t step) const;
  void print(const std::string& text);

  Job& job_;
  Supervision& supervision_;
  Output& output_;
  Checkpointing checkpoints_;
  huggingface::HfWriteOptions export_options_;  ///< on the first rank of a run that exports
};

}  // namespace trireme::train
