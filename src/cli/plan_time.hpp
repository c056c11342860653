// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/config/load.hpp"
#include "trireme/planner/time/machine.hpp"

namespace CLI {
class App;
}

namespace trireme::cli {

/// Arguments of `plan` for predicted times.
struct PlanTime {
  std::string machine;            ///< a path or a shipped name; empty: not set
  std::string trace;              ///< path of the predicted timeline
  std::string validate;           ///< a CSV of measured runs
  std::string compare;            ///< the directory of a run
  std::string tokens;             ///< of a whole training, for its cost
  bool fit = false;               ///< also fit machines to its rows
  double checkpoint_minutes = 0;  ///< between saves that are suggested, at least; 0: the machine file's
};

void add_plan_time(CLI::App& command, PlanTime& arguments);

/// Prints every term for show = "time", and for "summary" the verdict, the prediction and faster settings; writes the
/// trace. Returns whether a summary's run fits the machine. Throws ConfigError if a machine is missing, WriteError if
/// the trace cannot be written.
bool plan_time(const config::RunConfig& config, int ranks, const std::string& show, const PlanTime& arguments,
               std::optional<int> pipeline_rank);

/// Prints a table with a row for each number of ranks that the run file fits, and why it does not fit the others.
/// Throws ConfigError if it fits none, with the reasons. `config`: complete.
void plan_scaling(const config::RunConfig& config, const std::vector<int>& ranks, const PlanTime& arguments);

/// The machine file at a path or the shipped one of that name; `local` with the cores that this process may use. Throws
/// ConfigError.
[[nodiscard]] planner::Machine load_machine_here(const std::string& path_or_name);

/// The same. Throws ConfigError if none is given.
[[nodiscard]] planner::Machine machine_for_plan(const std::string& path_or_name);

/// Throws ConfigError if the output `path` is a file that `plan` reads.
void check_plan_output(const std::string& path, const config::RunConfig& config, const PlanTime& arguments,
                       const std::string& run_file);

/// Replaces the file at `path`. Throws WriteError.
void write_plan_file(const std::string& path, const std::string& text);

/// Prints the cost of training on `arguments.tokens` tokens. Throws ConfigError.
void plan_tokens(const config::RunConfig& config, int ranks, const PlanTime& arguments);

/// Predicts every row of the CSV and prints the errors. Throws ConfigError with line and column.
void plan_validate(const PlanTime& arguments);

}  // namespace trireme::cli
