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

int host_threads(const mpi::Topology& topology, int threads, bool on_gpu) {
  return std::max(1, on_gpu ? threads - 1 : cores_of_a_rank(topology) - threads);
}

std::string few_cores_warning(const mpi::Topology& topology, int threads, bool on_gpu, const executor::HostWork& work) {
  const int cores = cores_of_a_rank(topology);
  if (work.bytes.value == 0 || work.seconds <= 0) return {};
  if (on_gpu ? host_threads(topology, threads, true) > 1 : cores > threads) return {};
  std::string text = fmt::format("memory.offload: updates on the host reach {:.1f} GB/s and have ",
                                 static_cast<double>(work.bytes.value) / work.seconds / 1e9);
  text += on_gpu ? fmt::format("one thread: a rank has {} core{} and {} thread{}. ", cores, cores == 1 ? "" : "s",
                               threads, threads == 1 ? "" : "s")
                 : fmt::format("no core of their own: a rank has {} core{} and computes on {}. ", cores,
                               cores == 1 ? "" : "s", threads);
  const int better = on_gpu ? cores : cores - 1;
  const std::string first =
      better > (on_gpu ? 2 : 0) ? fmt::format("Set device.threads = {}, or give", better) : "Give";
  return text + first + " each rank more cores (srun --cpus-per-task, mpirun --map-by slot:PE=n --bind-to core).";
}

}  // namespace trireme::train
