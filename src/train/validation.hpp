// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/record/metrics.hpp"
#include "train/save/stopping.hpp"
#include "train/setup/supervision.hpp"
#include "trireme/data/batch_reader.hpp"
#include "trireme/train/engine/job.hpp"

namespace trireme::train {

/// The validation sets of a run. Everything is collective over the job, lanes at rest.
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
  };
  /// Evaluates after step `step` (from 0).
  [[nodiscard]] Result evaluate(std::int64_t step);

 private:
  struct Set {
    std::string name;  ///< empty: there is one
    data::Datasets files;
  };
  /// The next batch of every rank; none where one cannot read it, which `failure` then tells.
  std::optional<data::StepBatch> read_together(data::BatchReader& reader, std::string& failure) const;
  [[nodiscard]] Job::Evaluation evaluate(const Set& set, std::int64_t step, std::string& failure);

  Job& job_;
  const config::RunConfig& config_;
  Supervision& supervision_;
  Stopping& stopping_;
  std::vector<Set> sets_;
};

/// The loss on a named set, or on all with an empty name.
[[nodiscard]] double loss_on(const EvalRow& row, const std::string& set);

}  // namespace trireme::train
