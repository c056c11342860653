// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "trireme/mpi/topology.hpp"

namespace trireme::train {

/// Reads an environment variable; "" when it is not set.
using Variable = std::function<std::string(std::string_view name)>;
[[nodiscard]] std::string environment_variable(std::string_view name);

/// Slurm's settings of the job of this process.
struct BatchJob {
  std::string id;     ///< "" outside of Slurm
  std::string array;  ///< "12_3" for task 3 of array 12; "" otherwise
  std::string nodes;  ///< "n[1-2]"
  std::int64_t restart_count = 0;
  std::int64_t node_cores = 0;  ///< CPUs that the job has on this node; 0: unknown
};
[[nodiscard]] BatchJob batch_job(const Variable& variable = environment_variable);

/// "Slurm 12 on n[1-2], restart 1"; "" outside of Slurm.
[[nodiscard]] std::string to_text(const BatchJob& job);

/// Describes a lack of cores on this node: a Slurm job that has fewer than the threads of its ranks, ranks that share
/// an affinity mask which is too small for them while the node has more cores, several threads a rank that exceed the
/// node. Empty if there are enough, and for ranks of one thread that oversubscribe a node. threads: of a rank.
[[nodiscard]] std::string too_few_cores(const BatchJob& job, const mpi::Topology& topology, int threads);

}  // namespace trireme::train
