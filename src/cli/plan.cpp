// SPDX-License-Identifier: Apache-2.0
//
// trireme plan: memory, traffic, time and schedule of a run, without running it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.hpp"
#include "cli/plan_compare.hpp"
#include "cli/plan_pipeline.hpp"
#include "cli/plan_search.hpp"
#include "cli/plan_time.hpp"
#include "cli/start/front_page.hpp"
#include "cli/start/numbers.hpp"
#include "cli/submit_script.hpp"
#include "trireme/base/error.hpp"
#include "trireme/config/load.hpp"
#include "trireme/config/names.hpp"
#include "trireme/planner/advice.hpp"
#include "trireme/planner/choose.hpp"
#include "trireme/planner/rank_bytes.hpp"
#include "trireme/planner/replay.hpp"
#include "trireme/planner/time/predict.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/schedule/text.hpp"
#include "trireme/shard/layout.hpp"

namespace trireme::cli {
namespace {

struct PlanArguments {
  std::string run_file;
  std::vector<std::string> overrides;
  std::vector<int> ranks;
  std::string show = "summary";
  std::optional<int> pipeline_rank;
  PlanTime time;
  PlanSearch search;
};

/// The passes that build the schedules of a run.
void print_passes(const model::Model& model, int microbatches, const schedule::Policy& policy) {
  const auto print = [&](const char* what, schedule::Purpose purpose, schedule::Schedule order) {
    fmt::print("{}\n{}", what, schedule::to_text(schedule::explain(purpose, model, std::move(order), policy)));
  };
  print("training step", schedule::Purpose::train, schedule::compute_order(model, microbatches));
  print("\nforward of evaluation and generation", schedule::Purpose::forward, schedule::forward_order(model));
}

int plan(const PlanArguments& arguments, const CompleteModel& complete) {
  if (!arguments.time.validate.empty()) {
    plan_validate(arguments.time);
    return 0;
  }
  if (!arguments.time.compare.empty()) {
    plan_compare(arguments.time.compare, arguments.time.machine, complete);
    return 0;
  }
  if (arguments.run_file.empty()) throw ConfigError("plan: RUN.toml is required");
  if (arguments.ranks.empty()) throw ConfigError("plan: --ranks is required");
  config::RunConfig config = complete(config::load_run_file(arguments.run_file, arguments.overrides));
  config::require_trainable(config);
  check_plan_output(arguments.search.asked ? search_output(arguments.run_file, arguments.search) : arguments.time.trace,
                    config, arguments.time, arguments.run_file);
  std::optional<planner::Machine> machine;
  if (!arguments.time.machine.empty()) machine = load_machine_here(arguments.time.machine);
  if (machine) config = planner::computing_on(std::move(config), !machine->gpus.empty());
  const bool several = arguments.ranks.size() > 1;
  if (several && (arguments.search.asked || !arguments.time.tokens.empty() || !arguments.time.trace.empty() ||
                  arguments.show != "summary" || arguments.pipeline_rank))
    throw ConfigError("plan: several --ranks give a scaling table; the other options take one number of ranks");
  if (several) {
    const model::Model whole = model::build(config.model, planner::tensor_part(config, {}, 0));
    planner::require_globs(config, whole);
    plan_scaling(config, arguments.ranks, arguments.time);
    return 0;
  }
  const int ranks = arguments.ranks.front();
  const auto [resolved, model] = planner::trainable(config, ranks);
  const planner::Machine on =
      machine ? *machine : planner::machine_of(config.device.type == config::DeviceType::cuda ? "GPU" : "", Bytes{});
  const planner::Choice choice = planner::choose_sync(config, model, resolved, planner::step_seconds_on(on, ranks));
  config.sync = choice.sync;
  const bool pipelined = config.mesh.pipeline > 1;
  if (!pipelined && (arguments.show == "pipeline" || arguments.pipeline_rank))
    throw ConfigError("plan: --show pipeline and --pipeline-rank require mesh.pipeline > 1");
  if (arguments.search.asked) {
    plan_search(config, ranks, arguments.time.machine, arguments.run_file, arguments.search);
    return 0;
  }
  if (!arguments.time.tokens.empty()) {
    plan_tokens(config, ranks, arguments.time);
    return 0;
  }
  const bool timed = !arguments.time.machine.empty();
  const bool fits = (timed || arguments.show == "time" || !arguments.time.trace.empty()) &&
                    plan_time(config, ranks, arguments.show, arguments.time, arguments.pipeline_rank);
  const std::string start =
      fits ? fmt::format("\nstart it: {}\n", start_command(arguments.run_file, ranks, on, 0, arguments.overrides)) : "";
  if (arguments.show == "time") return 0;
  if (arguments.show == "summary" && !choice.reason.empty()) fmt::print("{}\n", choice.reason);
  if (pipelined) {
    plan_pipeline(config, ranks, arguments.show, arguments.pipeline_rank, on);
    fmt::print("{}", start);
    return 0;
  }
  if (arguments.show == "passes") {
    print_passes(model, resolved.accumulation, schedule::policy_of(config, resolved));
    return 0;
  }
  if (arguments.show == "schedule") {
    fmt::print(
        "{}", schedule::print(schedule::build_step(model, resolved.accumulation, schedule::policy_of(config, resolved)),
                              model));
    return 0;
  }
  const planner::RankBytes bytes = planner::bytes_of_rank(config, resolved, model);
  if (arguments.show == "summary")
    fmt::print("{} of {} parameters on {} rank{} ({}), {} {} a step, {} gradients, {} ops in the schedule\n\n",
               model.architecture, to_short_text(static_cast<double>(model::build(config.model).elements())), ranks,
               ranks == 1 ? "" : "s", resolved.short_text(), resolved.accumulation,
               resolved.accumulation == 1 ? "microbatch" : "microbatches", config::to_text(config.sync.policy),
               bytes.ops);
  if (arguments.show != "traffic") {
    fmt::print("{}{}", planner::to_text(bytes.memory), planner::host_memory_text(bytes.memory, resolved, on));
    if (resolved.expert > 1)
      fmt::print("{}", planner::rows_text(bytes.step, model, shard::Layout(model, resolved.shards()),
                                          planner::replay_options_of(config, resolved)));
  }
  if (arguments.show == "summary") fmt::print("\n");
  if (arguments.show != "memory") fmt::print("{}", planner::to_text(bytes.traffic));
  if (arguments.show == "summary") fmt::print("\n{}{}", planner::to_text(planner::advise(config, ranks)), start);
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Action& chosen, const CompleteModel& complete) {
  const auto arguments = std::make_shared<PlanArguments>();
  CLI::App* command = add_command(app, "plan");
  command->add_option("RUN.toml", arguments->run_file, "The run file");
  command->add_option("--ranks", arguments->ranks, "Ranks of the job; several with commas: a scaling table")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(whole_number(1, std::numeric_limits<int>::max()));
  command
      ->add_option("--set", arguments->overrides, "override a key of the run file: section.key=value; may be repeated")
      ->allow_extra_args(false);
  command
      ->add_option(
          "--show", arguments->show,
          "schedule: one step, one op per line; passes: the compiler passes with times; memory: bytes of one rank; "
          "traffic: bytes of one rank per step; time: every term of the predicted time with its formula; "
          "pipeline: what every pipeline rank does when, with the bubble")
      ->check(CLI::IsMember({"summary", "schedule", "passes", "memory", "traffic", "time", "pipeline"}));
  command
      ->add_option("--pipeline-rank", arguments->pipeline_rank,
                   "With mesh.pipeline > 1: the pipeline rank whose schedule, memory and traffic are shown (default: "
                   "the one that holds the most)")
      ->check(whole_number(0, std::numeric_limits<int>::max()));
  add_plan_time(*command, arguments->time);
  add_plan_search(*command, arguments->search);
  command->footer(
      "Runs without MPI, GPU and data, for example on a login node. Reports every error of the run file that `train` "
      "would\n"
      "report at start, except those of token files and weights.\n\n"
      "Examples:\n"
      "  trireme plan inputs/quickstart.toml --ranks 4\n"
      "  trireme plan run.toml --ranks 512 --show memory --set sync.policy=deferred\n"
      "  trireme plan run.toml --ranks 4 --show schedule | less          one step, one op per line\n"
      "  trireme plan run.toml --ranks 8,64,512 --machine h100            a scaling table\n"
      "  trireme plan run.toml --ranks 64 --machine h100 --search         the fastest settings that fit\n"
      "  trireme plan run.toml --ranks 512 --machine h100 --tokens 2T     days, GPU-hours, energy, failures\n"
      "  trireme plan --compare runs/first --machine h100                 a finished run: predicted and measured");
  command->callback(
      [&chosen, arguments, complete] { chosen = [arguments, complete] { return plan(*arguments, complete); }; });
}

}  // namespace trireme::cli
