// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

/// Command lines of `trireme supervise`: values.
namespace trireme::cli {

using Words = std::vector<std::string>;

/// The user's command: LAUNCHER [OPTIONS] [--] PROGRAM train ARGUMENTS.
struct LaunchCommand {
  enum class Launcher { srun, mpirun };
  Launcher launcher = Launcher::srun;
  Words options;    ///< the launcher and its options
  Words program;    ///< without `train`
  Words arguments;  ///< `train` and what follows
};

/// Throws ConfigError for another launcher, a command without `train`, and options that place ranks.
[[nodiscard]] LaunchCommand parse_launch(const Words& command);

/// Nodes and ranks of an allocation.
struct Allocation {
  Words nodes;
  int ranks_per_node = 1;
};

/// Ranks of a node in a Slurm job, from its variables. Throws EnvironmentError outside of one, and where they differ.
[[nodiscard]] int ranks_per_node(const std::function<std::string(std::string_view)>& variable, int nodes);

/// Hosts of Open MPI's host file ("name slots=4"), all with as many slots. Throws ConfigError.
[[nodiscard]] Allocation parse_host_file(const std::string& text, const std::string& path);
/// The same text for `nodes`.
[[nodiscard]] std::string host_file(const Words& nodes, int ranks_per_node);

/// Command that trains on `nodes` of `all`. hosts: path of their host file, for mpirun.
[[nodiscard]] Words train_command(const LaunchCommand& command, const Allocation& all, const Words& nodes,
                                  const std::string& hosts);

/// Command that runs `trireme doctor --node ARGUMENTS` once on each of `nodes`. mpirun takes one node a command.
[[nodiscard]] Words check_command(const LaunchCommand& command, const Allocation& all, const Words& nodes,
                                  const std::string& hosts, const Words& arguments);

}  // namespace trireme::cli
