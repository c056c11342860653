// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/choices.hpp"
#include "train/record/metrics.hpp"
#include "train/save/stopping.hpp"
#include "train/setup/supervision.hpp"
#include "trireme/checkpoint/best.hpp"
#include "trireme/data/batch_reader.hpp"
#include "trireme/train/engine/job.hpp"

namespace trireme::train {

/// The validation sets and multiple-choice questions of a run. Everything is collective over the job, with idle lanes.
class Validation {
 public:
  /// All outlive this.
  Validation(Job& job, Supervision& supervision, Stopping& stopping)
      : job_(job), config_(job.config()), supervision_(supervision), stopping_(stopping) {}

  /// Opens the files, to the end of the run: every evaluation reads the same ones, removed or not. Throws DataError.
  void open();

  struct Result {
    std::optional<EvalRow> row{};  ///< none when the files cannot be read, which is an error line, or with `stops`
    bool stops = false;            ///< the run has to: the evaluation is left for the next start
    /// With checkpoint.keep_best: the loss that decides. Its `evaluated` is set on the first rank alone.
    std::optional<checkpoint::Best> best{};
  };
  /// Evaluates after step `step` (from 0).
  [[nodiscard]] Result evaluate(std::int64_t step);

 private:
  struct Set {
    std::string name;  ///< empty: there is one
    data::Datasets files;
    bool warned = false;                       ///< that none of its targets counts
    std::optional<std::int64_t> text_bytes{};  ///< of its targets, if they are known; on the first rank
  };
  /// A set of questions.
  struct ChoiceSet {
    std::string name;
    std::vector<Choice> choices;
    std::vector<Question> questions;  ///< on the first rank
  };
  void open_choices();
  void count_text_bytes();
  [[nodiscard]] bool scores_choices_after(std::int64_t step) const;
  /// Scores all sets of questions into `row`. Returns false if the run has to stop.
  [[nodiscard]] bool score_all_choices(std::int64_t step, EvalRow& row);
  /// The next batch of every rank; none if one cannot read it; `failure` has the reason.
  std::optional<data::StepBatch> read_together(data::BatchReader& reader, std::string& failure) const;
  [[nodiscard]] Job::Evaluation evaluate(const Set& set, std::int64_t step, std::string& failure);
  /// Identifies the targets of a set, "": of all sets, by files and settings. Reads a sample of the files.
  [[nodiscard]] std::string identify(const std::string& set) const;

  Job& job_;
  const config::RunConfig& config_;
  Supervision& supervision_;
  Stopping& stopping_;
  std::vector<Set> sets_;
  std::vector<ChoiceSet> choices_;
  std::string best_over_;  ///< data of checkpoint.keep_best's loss; on the first rank
};

}  // namespace trireme::train
