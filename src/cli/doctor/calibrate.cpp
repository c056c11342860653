// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/calibrate.hpp"

#include <ATen/Parallel.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "cli/doctor/probe.hpp"
#include "train/setup/gemm.hpp"
#include "trireme/base/text.hpp"
#include "trireme/mpi/topology.hpp"

namespace trireme::cli {
namespace {

/// Of all ranks alike; what a rank may use of its node's memory.
Bytes memory_of_a_rank(const mpi::Topology& topology) {
  return {static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE)) /
          topology.node_ranks};
}

std::string description(const mpi::Topology& topology, const mpi::Communicator& world) {
  const int threads = at::get_num_threads();
  std::string text = fmt::format("{}, {} rank{} of {} thread{} on {} node{}, measured {:%Y-%m-%d}", look_at_cpu().name,
                                 world.size(), world.size() == 1 ? "" : "s", threads, threads == 1 ? "" : "s",
                                 topology.nodes, topology.nodes == 1 ? "" : "s", fmt::gmtime(std::time(nullptr)));
  if (topology.node_ranks == 1) text += "; links inside a node are a guess";
  if (topology.nodes == 1) text += "; links between nodes are a guess";
  return text;
}

}  // namespace

double typical_seconds(double budget_seconds, const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  constexpr std::size_t least = 5, warm_up = 2;
  for (std::size_t i = 0; i < warm_up; ++i) call();
  std::vector<double> seconds;
  double total = 0;
  while (seconds.size() < least || total < budget_seconds) {
    const auto begin = Clock::now();
    call();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    total += seconds.back();
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 10];
}

double mean_over_ranks(const mpi::Communicator& world, double seconds) {
  mpi::check(MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_SUM, world.handle()), "compare the ranks' times");
  return seconds / world.size();
}

planner::Machine measure_machine(const mpi::Communicator& world) {
  (void)train::agree_on_gemm(world);
  const mpi::Topology topology = mpi::probe_topology(world);
  planner::Machine machine = planner::load_machine("local");  // for links that these ranks do not have
  machine.about = description(topology, world);
  machine.grade = planner::Grade::measured;
  machine.memory = memory_of_a_rank(topology);
  machine.watts = machine.storage_bandwidth = machine.node_storage_bandwidth = 0;  // not measured: unknown
  measure_kernels(machine, world);
  measure_steps(machine, world);
  measure_links(machine, world);
  return machine;
}

}  // namespace trireme::cli
