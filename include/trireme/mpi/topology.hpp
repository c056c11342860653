// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::mpi {

class Communicator;

/// Where a rank runs.
struct Topology {
  std::string host;
  int node_rank = 0;   ///< among this node's ranks
  int node_ranks = 1;  ///< this node's ranks
  int nodes = 1;
  int rank_cores = 1;  ///< cores this rank may run on
  int node_cores = 1;  ///< cores in the union of what this node's ranks may run on, bounded by the cgroup's quota
};

/// Collective over `world`.
[[nodiscard]] Topology probe_topology(const Communicator& world);

/// Compute threads of a rank: `device_threads` when positive, else OMP_NUM_THREADS when it holds a positive number,
/// else max(1, cores in the union of the affinities of this node's ranks / those ranks). omp_num_threads: the
/// variable's text, "" when it is not set (its first number counts: "4,2").
[[nodiscard]] int threads_for_rank(const Topology& topology, std::int64_t device_threads,
                                   std::string_view omp_num_threads);

/// Cores that a cgroup v2 `cpu.max` text ("150000 100000", "max 100000") allows, at least 1; 0: no limit.
[[nodiscard]] int cores_of_quota(std::string_view cpu_max);

[[nodiscard]] std::string hostname();

}  // namespace trireme::mpi
