// SPDX-License-Identifier: Apache-2.0
#include "trireme/mpi/topology.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <fstream>
#include <string>

#include "trireme/mpi/communicator.hpp"

namespace trireme::mpi {
namespace {

using Cores = std::array<std::uint64_t, 128>;  // 8192 cores, the kernel's own bound

Cores own_cores() {
  Cores cores{};
  if (sched_getaffinity(0, sizeof(cores), reinterpret_cast<cpu_set_t*>(cores.data())) != 0) cores[0] = 1;
  return cores;
}

int count(const Cores& cores) {
  int n = 0;
  for (const std::uint64_t word : cores) n += std::popcount(word);
  return n;
}

std::int64_t number(std::string_view text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

int quota_here() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");  // within a container or a job step: its own group
  std::string line;
  return std::getline(file, line) ? cores_of_quota(line) : 0;
}

}  // namespace

std::string hostname() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown-host";
  return name.data();
}

int cores_of_quota(std::string_view cpu_max) {
  const std::size_t blank = cpu_max.find(' ');
  if (blank == std::string_view::npos) return 0;
  const std::int64_t quota = number(cpu_max.substr(0, blank));
  const std::int64_t period = number(cpu_max.substr(blank + 1));
  return quota > 0 && period > 0 ? static_cast<int>(std::max<std::int64_t>(1, quota / period)) : 0;
}

Topology probe_topology(const Communicator& world) {
  Topology topology{.host = hostname()};
  const Communicator node = world.node();
  topology.node_rank = node.rank();
  topology.node_ranks = node.size();
  const int leader = node.rank() == 0 ? 1 : 0;
  check(MPI_Allreduce(&leader, &topology.nodes, 1, MPI_INT, MPI_SUM, world.handle()), "count the nodes");

  const Cores mine = own_cores();
  Cores all{};
  check(MPI_Allreduce(mine.data(), all.data(), static_cast<int>(all.size()), MPI_UINT64_T, MPI_BOR, node.handle()),
        "join the affinities of this node's ranks");
  topology.rank_cores = count(mine);
  topology.node_cores = count(all);
  if (const int quota = quota_here(); quota > 0) topology.node_cores = std::min(topology.node_cores, quota);
  return topology;
}

int threads_for_rank(const Topology& topology, std::int64_t device_threads, std::string_view omp_num_threads) {
  if (device_threads > 0) return static_cast<int>(device_threads);
  if (const std::int64_t given = number(omp_num_threads); given > 0) return static_cast<int>(given);
  return std::max(1, topology.node_cores / topology.node_ranks);
}

}  // namespace trireme::mpi
