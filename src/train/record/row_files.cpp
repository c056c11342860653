// SPDX-License-Identifier: Apache-2.0
#include "train/record/row_files.hpp"

#include "train/record/curves.hpp"

namespace trireme::train {

RowFiles::RowFiles(const config::RunConfig& config, std::int64_t keep_steps)
    : metrics_(config.run.output + "/metrics.jsonl", keep_steps) {
  if (config.metrics.tensorboard) events_.emplace(config.run.output + "/tensorboard", keep_steps);
}

void RowFiles::append(const StepRow& row) {
  metrics_.append(to_json(row, last_written_));
  if (events_) events_->append(row.step, curves(row));
}

void RowFiles::append(const EvalRow& row) {
  metrics_.append(to_json(row));
  if (events_) events_->append(row.step, curves(row));
}

}  // namespace trireme::train
