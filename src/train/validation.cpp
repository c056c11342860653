// SPDX-License-Identifier: Apache-2.0
#include "train/validation.hpp"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "train/open_tokens.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/seconds.hpp"
#include "trireme/config/validation_sets.hpp"
#include "trireme/mpi/gather.hpp"

namespace trireme::train {

void Validation::open() {
  for (const std::string& name : config::validation_sets(config_.data)) {
    config::Data data = config_.data;
    data.validation = config::validation_files(data, name);
    sets_.push_back(
        {.name = name,
         .files = open_tokens(supervision_.world(), data, data::Split::validation, config_.model.vocab_size)});
  }
}

std::optional<data::StepBatch> Validation::read_together(data::BatchReader& reader, std::string& failure) const {
  std::optional<data::StepBatch> batch;
  try {
    batch = reader.next();
  } catch (const DataError& error) {
    failure = error.what();
  }
  failure = mpi::agree_on_failure(supervision_.world(), failure);
  return failure.empty() ? std::move(batch) : std::nullopt;
}

Job::Evaluation Validation::evaluate(const Set& set, std::int64_t step, std::string& failure) {
  data::BatchShape shape = job_.batch_shape();
  shape.accumulation = 1;
  data::BatchReader reader(set.files, config_.data, data::Split::validation, config_.run.seed, shape);
  const std::int64_t all =
      (reader.samples() + shape.global() - 1) / shape.global();  // targets past the last sample do not count
  auto batch_begin = std::chrono::steady_clock::now();
  const auto next = [&]() -> std::optional<data::StepBatch> {
    supervision_.mark("evaluation", step);
    (void)fault::point("eval.batch");
    stopping_.took({.evaluation_batch = seconds_since(std::exchange(batch_begin, std::chrono::steady_clock::now()))});
    if (stopping_.asked()) return std::nullopt;
    return read_together(reader, failure);
  };
  return job_.evaluate(next, config_.train.eval_steps > 0 ? config_.train.eval_steps : all);
}

Validation::Result Validation::evaluate(std::int64_t step) {
  const auto begin = std::chrono::steady_clock::now();
  const bool prints = supervision_.world().rank() == 0;
  mpi::doing(fmt::format("evaluation, step {}", step + 1));
  EvalRow row{.step = step + 1};
  double sum = 0, targets = 0;
  for (const Set& set : sets_) {
    std::string failure;
    const Job::Evaluation result = evaluate(set, step, failure);
    if (!failure.empty()) {
      if (prints)
        log::error(fmt::format("the evaluation of step {} failed, training continues: {}", step + 1, failure));
      return {};
    }
    if (!result.complete) {
      if (prints) log::info(fmt::format("the evaluation of step {} is left for the next start", step + 1));
      return {.stops = true};
    }
    sum += result.loss * result.targets;
    targets += result.targets;
    row.eval_loss = sets_.size() == 1 ? result.loss : sum / targets;
    if (!set.name.empty()) row.eval_losses.emplace_back(set.name, result.loss);
  }
  row.eval_tokens = static_cast<std::int64_t>(targets);
  row.eval_seconds = seconds_since(begin);
  return {.row = std::move(row)};
}

double loss_on(const EvalRow& row, const std::string& set) {
  for (const auto& [name, loss] : row.eval_losses)
    if (name == set) return loss;
  return row.eval_loss;
}

}  // namespace trireme::train
