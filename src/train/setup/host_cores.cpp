// SPDX-License-Identifier: Apache-2.0
#include "train/setup/host_cores.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::train {
namespace {

int cores_of_a_rank(const mpi::Topology& topology) {
  return std::max(1, topology.node_cores / std::max(1, topology.node_ranks));
}

}  // namespace

int host_threads(const mpi::Topology& topology, int compute_threads) {
  return std::max(1, cores_of_a_rank(topology) - compute_threads);
}

std::string few_cores_warning(const mpi::Topology& topology, int compute_threads, const executor::HostWork& work) {
  const int cores = cores_of_a_rank(topology);
  if (work.bytes.value == 0 || work.seconds <= 0 || cores > compute_threads) return {};
  return fmt::format(
      "memory.offload: updates on the host reach {:.1f} GB/s and have no core of their own: a rank has {} core{} and "
      "computes on {}. {}",
      static_cast<double>(work.bytes.value) / work.seconds / 1e9, cores, cores == 1 ? "" : "s", compute_threads,
      cores > 1 ? fmt::format("Set device.threads = {}, or give each rank more cores (srun --cpus-per-task, mpirun "
                              "--map-by slot:PE=n --bind-to core).",
                              cores - 1)
                : "Give each rank more cores (srun --cpus-per-task, mpirun --map-by slot:PE=n --bind-to core).");
}

}  // namespace trireme::train
