// SPDX-License-Identifier: Apache-2.0
#include "train/record/row_files.hpp"

#include <utility>

#include "train/record/curves.hpp"
#include "trireme/config/validation_sets.hpp"

namespace trireme::train {

RowFiles::RowFiles(const config::RunConfig& config, std::int64_t keep_steps)
    : metrics_(config.run.output + "/metrics.jsonl", keep_steps),
      evaluates_(config.train.eval_every > 0),
      choices_(!config.data.choices.empty()) {
  if (evaluates_) sets_ = config::validation_sets(config.data);
  std::erase(sets_, "");  // one without a name
  if (config.metrics.tensorboard) events_.emplace(config.run.output + "/tensorboard", keep_steps);
}

void RowFiles::append(const StepRow& row) {
  const bool first = last_written_.empty();
  std::string json = to_json(row, last_written_);
  metrics_.append(first && evaluates_ ? with_evaluation_keys(std::move(json), sets_, choices_) : json);
  if (events_) events_->append(row.step, curves(row));
}

void RowFiles::append(const EvalRow& row) {
  metrics_.append(to_json(row));
  if (events_) events_->append(row.step, curves(row));
}

}  // namespace trireme::train
