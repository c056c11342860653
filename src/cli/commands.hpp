// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/config/run_config.hpp"

namespace CLI {
class App;
}

/// The subcommands, one file each. Each adds itself to the command line and sets the action of the chosen one.
namespace trireme::cli {

/// Runs a subcommand; returns the exit code. Throws Error.
using Action = std::function<int()>;

/// Adds a subcommand to `app` and stores its action in `chosen` when the command line names it.
void add_init(CLI::App& app, Action& chosen);
void add_train(CLI::App& app, Action& chosen);
void add_tokenize(CLI::App& app, Action& chosen);
void add_data(CLI::App& app, Action& chosen);
void add_generate(CLI::App& app, Action& chosen);
void add_chat(CLI::App& app, Action& chosen);
void add_models(CLI::App& app, Action& chosen);
void add_doctor(CLI::App& app, Action& chosen);
void add_evaluate(CLI::App& app, Action& chosen);
void add_report(CLI::App& app, Action& chosen);
void add_export_metrics(CLI::App& app, Action& chosen);
/// completion and man, about all commands of `app`, which outlives the action.
void add_pages(CLI::App& app, Action& chosen);
/// `complete`: fills in the sizes of the run file's model; it may read them from `model.from`.
using CompleteModel = std::function<config::RunConfig(config::RunConfig)>;
void add_plan(CLI::App& app, Action& chosen, const CompleteModel& complete);
void add_submit(CLI::App& app, Action& chosen);
/// words: the launcher's command, behind `--`.
void add_supervise(CLI::App& app, Action& chosen, const std::vector<std::string>& words);
/// inspect, verify, import and export.
void add_checkpoints(CLI::App& app, Action& chosen);

}  // namespace trireme::cli
