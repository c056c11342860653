// SPDX-License-Identifier: Apache-2.0
#include "train/validation.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "train/open_tokens.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/base/hash.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/seconds.hpp"
#include "trireme/config/names.hpp"
#include "trireme/config/validation_sets.hpp"
#include "trireme/mpi/collective_try.hpp"

namespace trireme::train {

void Validation::open() {
  for (const std::string& name : config::validation_sets(config_.data)) {
    config::Data data = config_.data;
    data.validation = config::validation_files(data, name);
    sets_.push_back(
        {.name = name,
         .files = open_tokens(supervision_.world(), data, data::Split::validation, config_.model.vocab_size)});
  }
  if (!config_.checkpoint.keep_best) return;
  mpi::collective_try(supervision_.world(), "identify the validation files", [&] {
    if (supervision_.world().rank() == 0) best_over_ = identify(*config_.checkpoint.keep_best);
  });
}

std::string Validation::identify(const std::string& name) const {
  const config::Data& data = config_.data;
  std::string text =
      fmt::format("seq_len {} sequences {} ignore_targets {} document_mask {} document_end {}", data.seq_len,
                  config_.train.eval_steps > 0 ? config_.train.eval_steps * config_.batch.global : 0,
                  fmt::join(data.ignore_targets, ","), data.document_mask, data.document_end.value_or(-1));
  if (data.packing != config::Packing::concatenate) text += fmt::format(" packing {}", config::to_text(data.packing));
  for (const Set& set : sets_) {
    if (!name.empty() && set.name != name) continue;
    for (const data::Dataset& dataset : *set.files)
      for (const data::TokenFile& file : dataset.files())
        text += fmt::format(" {} {:016x}", file.tokens(), file.fingerprint());
  }
  return fmt::format("{:016x}", fnv1a(text));
}

std::optional<data::StepBatch> Validation::read_together(data::BatchReader& reader, std::string& failure) const {
  std::optional<data::StepBatch> batch;
  try {
    mpi::collective_try(supervision_.world(), "read an evaluation batch", [&] { batch = reader.next(); });
    return batch;
  } catch (const mpi::CollectiveError& error) {
    if (error.code() != ExitCode::data) throw Error(error.code(), error.what());
    failure = error.what();
    return std::nullopt;
  }
}

Job::Evaluation Validation::evaluate(const Set& set, std::int64_t step, std::string& failure) {
  data::BatchShape shape = job_.batch_shape();
  shape.accumulation = 1;
  if (config_.train.eval_steps > 0) shape.end = config_.train.eval_steps * config_.batch.global;
  data::BatchReader reader(set.files, config_.data, data::Split::validation, config_.run.seed, shape);
  const std::int64_t sequences = std::min(shape.end, reader.samples());
  auto batch_begin = std::chrono::steady_clock::now();
  const auto next = [&]() -> std::optional<data::StepBatch> {
    supervision_.mark("evaluation", step);
    (void)fault::point("eval.batch");
    stopping_.took({.evaluation_batch = seconds_since(std::exchange(batch_begin, std::chrono::steady_clock::now()))});
    if (stopping_.asked()) return std::nullopt;
    return read_together(reader, failure);
  };
  // Sequences after the last requested one do not count.
  return job_.evaluate(next, (sequences + shape.global() - 1) / shape.global());
}

Validation::Result Validation::evaluate(std::int64_t step) {
  const auto begin = std::chrono::steady_clock::now();
  const bool prints = supervision_.world().rank() == 0;
  mpi::doing(fmt::format("evaluation, step {}", step + 1));
  EvalRow row{.step = step + 1};
  double sum = 0, targets = 0;
  std::optional<checkpoint::Best> best;
  for (Set& set : sets_) {
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
    if (result.targets > 0) sum += result.loss * result.targets;
    targets += result.targets;
    if (result.targets == 0 && !std::exchange(set.warned, true) && prints)
      log::warning(
          fmt::format("no target of {} counts (a mask, or data.ignore_targets): its loss is null in metrics.jsonl, and "
                      "checkpoint.keep_best passes it over",
                      set.name.empty() ? "data.validation" : fmt::format("the validation set \"{}\"", set.name)));
    if (!set.name.empty()) row.eval_losses.emplace_back(set.name, result.loss);
    if (config_.checkpoint.keep_best == set.name)
      best = {.loss = result.loss, .targets = static_cast<std::int64_t>(result.targets), .evaluated = best_over_};
    row.eval_loss = result.loss;
  }
  if (sets_.size() > 1) row.eval_loss = targets > 0 ? sum / targets : std::numeric_limits<double>::quiet_NaN();
  row.eval_tokens = static_cast<std::int64_t>(targets);
  row.eval_seconds = seconds_since(begin);
  if (config_.checkpoint.keep_best && !best)
    best = {.loss = row.eval_loss, .targets = row.eval_tokens, .evaluated = best_over_};
  return {.row = std::move(row), .best = std::move(best)};
}

}  // namespace trireme::train
