// SPDX-License-Identifier: Apache-2.0
#include "train/validation.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <numbers>
#include <utility>

#include "train/open_tokens.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/base/hash.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/seconds.hpp"
#include "trireme/config/names.hpp"
#include "trireme/config/validation_sets.hpp"
#include "trireme/data/text_bytes.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/tokenizer/tokenizer.hpp"

namespace trireme::train {
namespace {

/// nats: the loss of all targets.
double bits_per_byte(double nats, double bytes) { return nats / std::numbers::ln2 / bytes; }

}  // namespace

void Validation::open() {
  for (const std::string& name : config::validation_sets(config_.data)) {
    config::Data data = config_.data;
    data.validation = config::validation_files(data, name);
    sets_.push_back(
        {.name = name,
         .files = open_tokens(supervision_.world(), data, data::Split::validation, config_.model.vocab_size)});
  }
  count_text_bytes();
  open_choices();
  if (!config_.checkpoint.keep_best) return;
  mpi::collective_try(supervision_.world(), "identify the validation files", [&] {
    if (supervision_.world().rank() == 0) best_over_ = identify(*config_.checkpoint.keep_best);
  });
}

void Validation::count_text_bytes() {
  if (!config_.data.ignore_targets.empty()) return;
  mpi::collective_try(supervision_.world(), "count the bytes of the validation text", [&] {
    if (supervision_.world().rank() != 0) return;
    std::unique_ptr<tokenizer::Tokenizer> tokenizer;
    if (!config_.data.tokenizer.empty()) tokenizer = tokenizer::make_tokenizer(config_.data.tokenizer);
    for (Set& set : sets_) {
      const data::Dataset& dataset = set.files->front();
      const std::int64_t asked = config_.train.eval_steps * config_.batch.global;
      const std::int64_t samples = asked > 0 ? std::min(asked, dataset.samples()) : dataset.samples();
      set.text_bytes = data::text_bytes(dataset, samples, tokenizer.get());
    }
  });
}

void Validation::open_choices() {
  for (const std::string& name : config::set_names(config_.data.choices)) {
    ChoiceSet set{.name = name.empty() ? "choices" : name, .choices = {}, .questions = {}};
    set.choices = decode_choices(mpi::on_first_rank(supervision_.world(), "read the questions", [&] {
      const auto tokenizer = tokenizer::make_tokenizer(config_.data.tokenizer);
      std::vector<Choice> choices;
      for (const config::TokenSource& file : config::files_of_set(config_.data.choices, name)) {
        const std::int64_t limit = config_.train.choices_limit;
        if (limit > 0 && std::ssize(set.questions) >= limit) break;
        const std::vector<Question> questions =
            first_questions(file.path, limit > 0 ? limit - std::ssize(set.questions) : 0);
        std::ranges::move(choices_of(*tokenizer, questions, static_cast<std::size_t>(config_.data.seq_len), file.path),
                          std::back_inserter(choices));
        std::ranges::copy(questions, std::back_inserter(set.questions));
      }
      return encode(choices);
    }));
    choices_.push_back(std::move(set));
  }
}

bool Validation::scores_choices_after(std::int64_t step) const {
  const std::int64_t every = config_.train.choices_every;
  return !choices_.empty() && (every == 0 || (step + 1) % every == 0);
}

bool Validation::score_all_choices(std::int64_t step, EvalRow& row) {
  constexpr std::size_t rows_between = 16;  // that take as long as a batch of an evaluation
  for (const ChoiceSet& set : choices_) {
    std::size_t rows = 0;
    auto begin = std::chrono::steady_clock::now();
    const auto goes_on = [&](std::size_t /*done*/) {
      if (++rows % rows_between != 0) return true;
      supervision_.mark("evaluation", step);
      stopping_.took({.evaluation_batch = seconds_since(std::exchange(begin, std::chrono::steady_clock::now()))});
      return !stopping_.asked();
    };
    try {
      const auto log_likelihoods = score_choices(job_, set.choices, set.name, goes_on);
      if (!log_likelihoods) return false;
      if (supervision_.world().rank() == 0)
        row.choices.emplace_back(set.name, scores_of(set.questions, *log_likelihoods));
    } catch (const NumericsError& error) {  // of a sum over all ranks: every rank has it
      if (supervision_.world().rank() == 0)
        log::warning(fmt::format("the questions at step {} have no scores: {}", step + 1, error.what()));
    }
  }
  return true;
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
  double sum = 0, targets = 0, bytes = 0;
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
    bytes += set.text_bytes ? static_cast<double>(*set.text_bytes) : std::numeric_limits<double>::quiet_NaN();
    if (set.text_bytes && !set.name.empty())
      row.bits_per_byte_of_sets.emplace_back(
          set.name, bits_per_byte(result.loss * result.targets, static_cast<double>(*set.text_bytes)));
    if (config_.checkpoint.keep_best == set.name)
      best = {.loss = result.loss, .targets = static_cast<std::int64_t>(result.targets), .evaluated = best_over_};
    row.eval_loss = result.loss;
  }
  if (sets_.size() > 1) row.eval_loss = targets > 0 ? sum / targets : std::numeric_limits<double>::quiet_NaN();
  row.eval_tokens = static_cast<std::int64_t>(targets);
  if (!std::isnan(bytes)) row.bits_per_byte = bits_per_byte(sum, bytes);
  if (scores_choices_after(step) && !score_all_choices(step, row)) {
    if (prints) log::info(fmt::format("the evaluation of step {} is left for the next start", step + 1));
    return {.stops = true};
  }
  row.eval_seconds = seconds_since(begin);
  if (config_.checkpoint.keep_best && !best)
    best = {.loss = row.eval_loss, .targets = row.eval_tokens, .evaluated = best_over_};
  return {.row = std::move(row), .best = std::move(best)};
}

}  // namespace trireme::train
