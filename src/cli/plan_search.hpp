// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/config/run_config.hpp"

namespace CLI {
class App;
}

namespace trireme::cli {

/// What `plan --search` is asked for.
struct PlanSearch {
  bool asked = false;
  std::string output;  ///< where the best run file goes; empty: RUN-best.toml in the working directory
};

/// Where the best run file goes.
[[nodiscard]] std::string search_output(const std::string& run_file, const PlanSearch& arguments);

/// Throws ConfigError where `path` is a file other than one that a search wrote and nobody edited since.
void check_search_output(const std::string& path);

/// Writes `run_file` to `path` in a form that `check_search_output` knows again. Throws WriteError.
void write_search_output(const std::string& path, const std::string& run_file);

void add_plan_search(CLI::App& command, PlanSearch& arguments);

/// Searches, prints the best ten and writes the best as a run file; with a progress line where standard error is a
/// terminal. `config`: complete, `sync.policy` resolved. Throws ConfigError, also where the file to
/// write is in the way, before it searches; WriteError.
void plan_search(const config::RunConfig& config, int ranks, const std::string& machine, const std::string& run_file,
                 const PlanSearch& arguments);

}  // namespace trireme::cli
