// SPDX-License-Identifier: Apache-2.0
#include "cli/init/first_run_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"
#include "trireme/config/load.hpp"
#include "trireme/config/options.hpp"
#include "trireme/config/rules.hpp"
#include "trireme/huggingface/complete_model.hpp"
#include "trireme/model/model.hpp"

namespace trireme::cli {
namespace {

/// Usual training settings of models up to a size.
struct Habit {
  double parameters;  ///< at most
  double step_tokens;
  double lr;
};
constexpr std::array habits{Habit{8e6, 4096, 4e-3},  Habit{3e7, 16384, 2e-3},  Habit{9e7, 65536, 1e-3},
                            Habit{2e8, 0.5e6, 6e-4}, Habit{5e8, 0.5e6, 3e-4},  Habit{1e9, 0.5e6, 2.5e-4},
                            Habit{2e9, 1e6, 2e-4},   Habit{5e9, 1e6, 1.6e-4},  Habit{1e10, 2e6, 1.2e-4},
                            Habit{3e10, 2e6, 1e-4},  Habit{1e300, 3.2e6, 6e-5}};

/// A power of two times `of`, near `number`: divisible by twice and half the ranks, too.
std::int64_t doubled_from(std::int64_t of, std::int64_t number) {
  const std::int64_t each = (number + of - 1) / of;
  const auto above = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(each)));
  return of * (4 * each < 3 * above ? above / 2 : above);
}

std::string count_of(double number) { return to_short_text(number); }

}  // namespace

void choose_training(FirstRun& run, Reasons& reasons) {
  config::RunConfig& config = run.config;
  const auto parameters = static_cast<double>(model::build(run.sizes).elements());
  const Habit& habit = *std::ranges::find_if(habits, [&](const Habit& h) { return parameters <= h.parameters; });
  const auto seq_len = static_cast<double>(config.data.seq_len);
  constexpr std::int64_t steps_an_epoch = 20, fewest_steps = 100;
  std::int64_t global = std::max<std::int64_t>(1, static_cast<std::int64_t>(habit.step_tokens / seq_len));
  global = std::min(global, std::max<std::int64_t>(1, run.samples / steps_an_epoch));
  config.batch.global = doubled_from(run.ranks, global);
  reasons["batch.global"] = fmt::format(
      "sequences a step, which twice the ranks divide, too: {} tokens; models of {} parameters are trained with about "
      "{}",
      count_of(static_cast<double>(config.batch.global) * seq_len), count_of(parameters), count_of(habit.step_tokens));
  const bool continues = !config.model.from.empty();
  config.optimizer.lr = continues ? habit.lr / 10 : habit.lr;
  reasons["optimizer.lr"] = continues ? "a tenth of what such a model is trained from scratch with: tune it first"
                                      : "as models of this size are trained with: tune it first";
  const std::int64_t epoch = std::max<std::int64_t>(1, run.samples / config.batch.global);
  config.train.steps = std::max(epoch, fewest_steps);
  config.checkpoint.every = std::clamp<std::int64_t>(config.train.steps / 10, 1, 1000);
  config.train.steps -= config.train.steps % config.checkpoint.every;  // the last evaluation is of the last step
  const double epochs =
      static_cast<double>(config.train.steps * config.batch.global) / static_cast<double>(run.samples);
  const std::string times = fmt::format("{:.3g}", epochs);
  reasons["train.steps"] =
      fmt::format("{} tokens: {} {} of data.train",
                  count_of(static_cast<double>(config.train.steps * config.batch.global) * seq_len), times,
                  times == "1" ? "epoch" : "epochs");
  constexpr std::int64_t fewest_warmup_steps = fewest_steps * 3 / 10;  // with 5, 10 or 20 tiny models have spikes
  config.lr.warmup_steps = std::clamp<std::int64_t>(config.train.steps / 20, fewest_warmup_steps, 2000);
  reasons["lr.warmup_steps"] = "a twentieth of the steps, 30 to 2000; more if the loss jumps";
  reasons["lr.schedule"] = "falls to lr.min_ratio at the last step; wsd can be extended later (docs/recipes.md)";
  reasons["optimizer.weight_decay"] = "of matrices; norms and biases have none";
  reasons["checkpoint.every"] = "what a crash costs at most, in steps; the same command resumes";
  if (run.validation > 0) {
    config.train.eval_every = config.checkpoint.every;
    reasons["train.eval_every"] = "steps between evaluations on data.validation";
    constexpr std::int64_t most_batches = 50;
    if (run.validation > most_batches * config.batch.global) config.train.eval_steps = most_batches;
  }
  config.run.export_when = config::Export::end;
  reasons["run.export"] = "a Hugging Face directory: trireme generate, transformers";
  config.metrics.report = true;
  reasons["metrics.report"] = "one page with curves, memory and traffic at the end";
}

planner::Found choose_settings(FirstRun& run, Reasons& reasons) {
  config::RunConfig& config = run.config;
  config.batch.micro = 1;
  config::RunConfig asked = huggingface::with_derived_sizes([&] {
    config::RunConfig whole = config;
    whole.model = run.sizes;
    config::complete(whole);
    return whole;
  }());
  const planner::SearchResult result = planner::search(asked, run.ranks, run.machine, {.keep = 1});
  if (result.best.empty())
    throw ConfigError(fmt::format(
        "{} rank{} of {} {} too few for this model: of {} settings none fits {} a rank{}. Give more --ranks, a smaller "
        "model, shorter sequences (--seq-len), or the machine that it will run on (--machine)",
        run.ranks, run.ranks == 1 ? "" : "s", run.machine.name, run.ranks == 1 ? "is" : "are", result.candidates,
        to_text(result.limit),
        result.host_limit ? fmt::format(" and {} of host memory a node", to_text(*result.host_limit)) : ""));
  planner::Found best = result.best.front();
  config.mesh = best.config.mesh;
  config.mesh.shard = -1;
  if (config.mesh.tensor == 1) config.mesh.sequence_parallel.reset();
  config.batch.micro = best.config.batch.micro;
  config.sync = best.config.sync;
  config.memory = best.config.memory;
  if (config.checkpoint.async && !best.config.checkpoint.async) {
    config.checkpoint.async = false;
    reasons["checkpoint.async"] = "a copy to save from does not fit the host memory of a node";
  }
  reasons["mesh.shard"] = "over all ranks that are left";
  reasons["batch.micro"] = fmt::format("sequences at once on a rank: the fastest of {} settings that fit, on {}",
                                       result.candidates, run.machine.name);
  reasons["sync.policy"] = "the fastest that fits";
  reasons["memory.recompute"] = "the fastest that fits";
  return best;
}

std::string first_run_text(const config::RunConfig& config, const Reasons& reasons, const std::string& about) {
  std::string text = "# " + about;
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2)
    text.insert(at + 1, text[at + 1] == '\n' ? "#" : "# ");
  text += "\n";
  std::string section;
  const config::RunConfig defaults;
  for (const config::Option& option : config::options()) {
    const config::Printed value = option.print(config);
    const auto reason = reasons.find(option.name());
    if (!value || (reason == reasons.end() && value == option.print(defaults))) continue;
    if (option.section != section) text += fmt::format("\n[{}]\n", option.section);
    section = option.section;
    text += fmt::format("{:<44} # {}\n", option.key + " = " + *value,
                        reason == reasons.end() ? option.meaning : reason->second);
  }
  return text;
}

}  // namespace trireme::cli
