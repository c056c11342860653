// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/calibrate.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <thread>
#include <utility>

#include "cli/doctor/probe.hpp"
#include "train/setup/gemm.hpp"
#include "trireme/base/text.hpp"
#include "trireme/kernels/gemm.hpp"
#include "trireme/mpi/topology.hpp"

namespace trireme::cli {
namespace {

/// A rank's share of its node's memory, equal on all ranks.
Bytes memory_of_a_rank(const mpi::Topology& topology) {
  return {static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE)) /
          topology.node_ranks};
}

std::string description(const mpi::Topology& topology, const mpi::Communicator& world, const std::string& disturbed) {
  const int threads = at::get_num_threads();
  std::string text =
      fmt::format("{}{}, {} rank{} of {} thread{} on {} node{}, measured {:%Y-%m-%d}", look_at_cpu().name, disturbed,
                  world.size(), world.size() == 1 ? "" : "s", threads, threads == 1 ? "" : "s", topology.nodes,
                  topology.nodes == 1 ? "" : "s", fmt::gmtime(std::time(nullptr)));
  if (topology.node_ranks == 1) text += "; links inside a node are a guess";
  if (topology.nodes == 1) text += "; links between nodes are a guess";
  return text;
}

/// Jiffies of all cores: those that computed, and all.
std::pair<double, double> cpu_time() {
  std::ifstream file("/proc/stat");
  std::string cpu;
  double busy = 0, all = 0, value = 0;
  file >> cpu;
  for (int column = 0; column < 8 && file >> value; ++column) {
    all += value;
    if (column != 3 && column != 4) busy += value;  // idle, waiting for disks
  }
  return {busy, all};
}

/// Cores that others use: seen while all ranks sleep. The most of all nodes. Collective over `world`.
double busy_cores(const mpi::Communicator& world) {
  mpi::check(MPI_Barrier(world.handle()), "begin to look at the load");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto [busy, all] = cpu_time();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const auto [busy_then, all_then] = cpu_time();
  double cores =
      all_then > all ? (busy_then - busy) / (all_then - all) * static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN)) : 0;
  mpi::check(MPI_Allreduce(MPI_IN_PLACE, &cores, 1, MPI_DOUBLE, MPI_MAX, world.handle()), "compare the load of nodes");
  return cores;
}

/// Equal products: the ninth of ten over the first of ten, by time. The most of all ranks. Collective over `world`.
double spread_of_products(const mpi::Communicator& world) {
  constexpr std::int64_t n = 512;
  constexpr std::size_t repetitions = 40;
  const at::Tensor x = at::ones({n, n}), w = at::ones({n, n});
  std::vector<double> seconds;
  (void)kernels::linear(x, w);
  for (std::size_t i = 0; i < repetitions; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    (void)kernels::linear(x, w);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(seconds.begin(), seconds.end());
  double spread = seconds[repetitions * 9 / 10] / seconds[repetitions / 10];
  mpi::check(MPI_Allreduce(MPI_IN_PLACE, &spread, 1, MPI_DOUBLE, MPI_MAX, world.handle()), "compare the ranks' times");
  return spread;
}

}  // namespace

std::string disturbance_text(double busy_cores, double spread) {
  constexpr double few_cores = 0.3, little_spread = 1.5;
  std::vector<std::string> found;
  if (busy_cores > few_cores) found.push_back(fmt::format("others used {:.1f} cores", busy_cores));
  if (spread > little_spread) found.push_back(fmt::format("equal products took up to {:.1f} times as long", spread));
  return found.empty() ? "" : fmt::format(" on a BUSY machine ({})", join(found, "; "));
}

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
  const double others = busy_cores(world);
  (void)train::agree_on_gemm(world);
  const double spread = spread_of_products(world);
  const mpi::Topology topology = mpi::probe_topology(world);
  planner::Machine machine = planner::load_machine("local");  // for links that these ranks do not have
  machine.about = description(topology, world, disturbance_text(others, spread));
  machine.grade = planner::Grade::measured;
  machine.memory = memory_of_a_rank(topology);
  machine.node_memory = {machine.memory.value * topology.node_ranks};
  machine.watts = machine.storage_bandwidth = machine.node_storage_bandwidth = 0;  // not measured: unknown
  measure_kernels(machine, world);
  measure_steps(machine, world);
  measure_links(machine, world);
  machine.node_bandwidth = machine.host_bandwidth * topology.node_ranks;  // measured on all ranks at once
  return machine;
}

}  // namespace trireme::cli
