// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/config/run_config.hpp"
#include "trireme/planner/time/machine.hpp"

namespace trireme::cli {

/// The command line of `trireme submit`.
struct SubmitArguments {
  std::string run_file;
  std::vector<std::string> overrides;
  int nodes = 1;
  int spares = 0;                     ///< in addition to `nodes`: wait for the failure of another
  std::optional<int> gpus_per_node;   ///< 0: ranks compute on CPUs
  std::optional<int> ranks_per_node;  ///< of nodes without GPUs
  std::string machine;
  int cpus_per_task = 8;
  std::string account, partition, modules, output;
  std::string time = "12:00:00";
  std::vector<std::string> options;  ///< more of sbatch's, each a word: --gres=gpu:4
  int try_steps = 0;
  bool dry_run = false;
};

/// The batch script of a run: one file, which needs neither a checkout nor an installation next to it. program: the
/// command of the ranks. Throws ConfigError if the ranks of this number of nodes do not fit the mesh, or a value cannot
/// be written into a script.
[[nodiscard]] std::string submit_script(const SubmitArguments& arguments, const config::RunConfig& config,
                                        const std::string& program);

/// Whether a file with this text was written by `submit_script`.
[[nodiscard]] bool is_submit_script(const std::string& text);

/// The command that starts a run file on exactly `ranks` ranks: mpirun on one machine (Open MPI's, with --oversubscribe
/// if the ranks exceed its cores); `trireme submit` if the ranks exceed one node of it. try_steps: 0: the whole run.
/// overrides: of --set.
[[nodiscard]] std::string start_command(const std::string& run_file, int ranks, const planner::Machine& machine,
                                        int try_steps = 0, const std::vector<std::string>& overrides = {});

}  // namespace trireme::cli
