// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::mpi {

class Communicator;

/// Node and cores of a rank.
struct Topology {
  std::string host;
  int node_rank = 0;   ///< among this node's ranks
  int node_ranks = 1;  ///< this node's ranks
  int nodes = 1;
  int rank_cores = 1;  ///< cores this rank may run on
  int mask_ranks = 1;  ///< this node's ranks that may run on the very same cores, this one among them
  int open_cores = 1;  ///< cores of this node that ranks could be bound to: of the cgroup, or all
  int node_cores = 1;  ///< cores that any rank of this node may run on, at most the cgroup's quota
};

/// Collective over `world`.
[[nodiscard]] Topology probe_topology(const Communicator& world);

/// Views of files among the ranks of a node: ranks with the same mount namespace, root and working directory open the
/// same files by the same paths.
struct FileView {
  int place = 0;              ///< among the ranks of this node with the same view
  int ranks = 1;              ///< their number
  bool of_first_rank = true;  ///< rank 0 of the job is among them
};

/// Collective over `world`, the whole job.
[[nodiscard]] FileView probe_file_view(const Communicator& world);

/// Compute threads of a rank: `device_threads` when positive, else OMP_NUM_THREADS when it holds a positive number,
/// else max(1, cores in the union of the affinities of this node's ranks / those ranks). omp_num_threads: the
/// variable's text, "" when it is not set (its first number counts: "4,2"). Throws EnvironmentError if that exceeds the
/// possible number on a node (1024, or four threads per core).
[[nodiscard]] int threads_for_rank(const Topology& topology, std::int64_t device_threads,
                                   std::string_view omp_num_threads);

/// Cores that a cgroup v2 `cpu.max` text ("150000 100000", "max 100000") allows, at least 1; 0: no limit.
[[nodiscard]] int cores_of_quota(std::string_view cpu_max);

/// Number of cores in a list of Linux ("0-3,8"); 0 for an empty one.
[[nodiscard]] int cores_of_list(std::string_view list);

[[nodiscard]] std::string hostname();

}  // namespace trireme::mpi
