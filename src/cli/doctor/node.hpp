// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace trireme::cli {

struct NodeCheckArguments {
  std::string report;     ///< folder for NODE.json; empty: none
  std::string name;       ///< of the node in the report; empty: Slurm's name, else the host's
  std::string end_ranks;  ///< value of TRIREME_LIFE: processes with it are killed; empty: none
};

/// `trireme doctor --node`: checks this node without MPI, in about a second: GPUs, memory, network, disk, products with
/// known bits. Prints the report; returns exit code 0, or 5 for a node with problems.
[[nodiscard]] int check_node(const NodeCheckArguments& arguments);

}  // namespace trireme::cli
