// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_time.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <thread>

#include "trireme/base/error.hpp"
#include "trireme/base/io/atomic_file.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/io/output.hpp"
#include "trireme/base/io/regular_file.hpp"
#include "trireme/base/text.hpp"
#include "trireme/planner/job/job_cost.hpp"
#include "trireme/planner/search/faster.hpp"
#include "trireme/planner/time/fit.hpp"
#include "trireme/planner/time/predict.hpp"
#include "trireme/planner/validate/validate.hpp"

namespace trireme::cli {
namespace {

std::string shipped_names() {
  std::vector<std::string> names;
  for (const planner::ShippedMachine& machine : planner::shipped_machines()) names.emplace_back(machine.name);
  return join(names, ", ");
}

}  // namespace

planner::Machine load_machine_here(const std::string& path_or_name) {
  planner::Machine machine = planner::load_machine(path_or_name);
  if (path_or_name == "local") machine.cores = std::max(1U, std::thread::hardware_concurrency());
  return machine;
}

void write_plan_file(const std::string& path, const std::string& text) {
  io::AtomicFile file(path);
  file.write(text);
  file.close();
  file.publish();
}

void check_plan_output(const std::string& path, const config::RunConfig& config, const PlanTime& arguments,
                       const std::string& run_file) {
  std::vector<std::string> inputs{run_file, arguments.machine};
  for (const std::vector<config::TokenSource>& sources : {config.data.train, config.data.validation})
    for (const config::TokenSource& source : sources) inputs.push_back(source.path);
  if (!config.model.from.empty())
    for (std::string& file : io::files_of_model(config.model.from)) inputs.push_back(std::move(file));
  io::check_output_is_no_input("plan", path, inputs);
}

planner::Machine machine_for_plan(const std::string& path_or_name) {
  if (path_or_name.empty())
    throw ConfigError("plan: time needs a machine: add --machine h100, another shipped name, or a machine file");
  return load_machine_here(path_or_name);
}

void add_plan_time(CLI::App& command, PlanTime& arguments) {
  command.add_option(
      "--machine", arguments.machine,
      "Predict time on this machine: a machine file, or a shipped one by name (" + shipped_names() + ")");
  command.add_option("--trace", arguments.trace, "Write the predicted timeline as a Chrome trace (needs --machine)");
  command.add_option("--compare", arguments.compare,
                     "Compare the run in this directory with the prediction for its run file: memory, bytes, and with "
                     "--machine times, by operation where it has a trace (metrics.trace_steps)");
  CLI::Option* tokens = command.add_option(
      "--tokens", arguments.tokens,
      "What training on so many tokens costs, such as 2T: days, GPU-hours, energy, with evaluations, "
      "saves and failures; suggests checkpoint.every (needs --machine)");
  command
      .add_option("--checkpoint-minutes", arguments.checkpoint_minutes,
                  "With --tokens: the shortest time between saves that is suggested (default: the machine file's "
                  "job.checkpoint_minutes)")
      ->needs(tokens)
      ->check(CLI::Range(0.0, 1e5));
  CLI::Option* validate = command.add_option(
      "--validate", arguments.validate,
      "Predict every row of a CSV of measured runs (docs/planner.md: its columns) and print the errors by family");
  command
      .add_flag("--fit", arguments.fit, "With --validate: fit each large fleet on half of its rows, test on the other")
      ->needs(validate);
}

void plan_scaling(const config::RunConfig& config, const std::vector<int>& ranks, const PlanTime& arguments) {
  const planner::ScalingTable table = planner::scaling_table(config, ranks, machine_for_plan(arguments.machine));
  if (table.rows == 0) throw ConfigError(fmt::format("plan: the run file fits none of these ranks\n{}", table.text));
  fmt::print("{}", table.text);
}

bool plan_time(const config::RunConfig& config, int ranks, const std::string& show, const PlanTime& arguments,
               std::optional<int> pipeline_rank) {
  if (pipeline_rank && *pipeline_rank >= config.mesh.pipeline)
    throw ConfigError(
        fmt::format("plan: --pipeline-rank {}: pipeline ranks are 0 to {}", *pipeline_rank, config.mesh.pipeline - 1));
  const planner::PredictOptions options{.pipeline_rank = pipeline_rank};
  const planner::Machine machine = machine_for_plan(arguments.machine);
  bool fits = false;
  if (show == "time") {
    fmt::print("{}", planner::explain_time(planner::predict_ops(config, ranks, machine, options)));
  } else if (show == "summary") {
    const planner::Prediction prediction = planner::predict(config, ranks, machine);
    fmt::print("{}\n{}{}\n", planner::verdict_text(config, prediction, machine), planner::to_text(prediction, machine),
               planner::owners_text(config, prediction, machine));
    (void)std::fflush(stdout);  // single changes take longer
    const std::string faster = planner::to_text(planner::speedups(config, ranks, machine), machine);
    if (!faster.empty()) fmt::print("{}\n", faster);
    fits = planner::fit_of(config, prediction.memory, prediction.mesh, machine).both();
  }
  if (arguments.trace.empty()) return fits;
  write_plan_file(arguments.trace, planner::predicted_trace(planner::predict_ops(config, ranks, machine, options)));
  return fits;
}

void plan_tokens(const config::RunConfig& config, int ranks, const PlanTime& arguments) {
  planner::Machine machine = machine_for_plan(arguments.machine);
  if (arguments.checkpoint_minutes > 0) machine.least_save_interval = 60 * arguments.checkpoint_minutes;
  const planner::JobCost cost = planner::job_cost(config, ranks, machine, planner::parse_tokens(arguments.tokens));
  fmt::print("{}\n{}\n{}", planner::verdict_text(config, cost.step, machine), planner::to_text(cost.step, machine),
             planner::to_text(cost, machine));
}

void plan_validate(const PlanTime& arguments) {
  const io::RegularFile opened = io::open_regular_file(arguments.validate);
  if (!opened.opened())
    throw ConfigError(fmt::format("--validate {}: cannot be read: {}", arguments.validate, opened.problem()));
  constexpr std::int64_t largest_file = std::int64_t{64} << 20;
  if (opened.bytes > largest_file)
    throw ConfigError(fmt::format("--validate {}: larger than 64 MiB; give fewer rows at once", arguments.validate));
  const std::string csv = planner::read_small_file("--validate", arguments.validate, largest_file);
  fmt::print("{}", printable_lines(planner::validate(csv, arguments.validate, arguments.fit)));
}

}  // namespace trireme::cli
