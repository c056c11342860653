// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/ones.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "cli/doctor/calibrate.hpp"
#include "trireme/comm/collectives.hpp"
#include "trireme/comm/groups.hpp"
#include "trireme/kernels/gemm.hpp"
#include "trireme/mesh/groups.hpp"
#include "trireme/mpi/topology.hpp"
#include "trireme/planner/time/calibrate.hpp"
#include "trireme/schedule/op.hpp"

namespace trireme::cli {
namespace {

using schedule::Lane;

double slowest_rank(const mpi::Communicator& group, double seconds) {
  mpi::check(MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, group.handle()), "compare the ranks' times");
  return seconds;
}

/// Gathers and reductions between the ranks of `group` at several sizes: the link, with the spread of the repetitions.
planner::Link measure_link(const planner::Machine& machine, const mpi::Communicator& group) {
  const auto collectives = comm::make_collectives(group, mesh::Group::shard, Lane::gather, {});
  std::vector<planner::TimedCollective> typical;
  std::vector<double> over_median;
  for (const std::int64_t kib : {16, 256, 2048, 16384}) {
    const std::int64_t elements = kib * 256 / group.size();  // of a rank, fp32
    std::vector<float> whole(static_cast<std::size_t>(elements * group.size()), 1.0F);
    float* const own = whole.data() + elements * group.rank();
    std::vector<float> shard(static_cast<std::size_t>(elements));
    for (const bool reduces : {false, true}) {
      constexpr int repetitions = 24, warm_up = 4;
      std::vector<double> seconds;
      for (int i = 0; i < repetitions + warm_up; ++i) {
        collectives->barrier();
        const auto begin = std::chrono::steady_clock::now();
        if (reduces)
          collectives->reduce_scatter(whole.data(), shard.data(), elements, DType::fp32, false);
        else
          collectives->all_gather(own, whole.data(), elements, DType::fp32);
        const double mine = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        if (const double all = slowest_rank(group, mine); i >= warm_up) seconds.push_back(all);
      }
      std::sort(seconds.begin(), seconds.end());
      const double median = seconds[seconds.size() / 2];
      for (const double one : seconds) over_median.push_back(one / median);
      typical.push_back({reduces, static_cast<double>(4 * elements * group.size()), median});
    }
  }
  planner::Link link = planner::fitted_link(typical, group.size(), machine);
  link.spread = planner::spread_of(std::move(over_median));
  return link;
}

double products_seconds(const mpi::Communicator& world) {
  constexpr std::int64_t n = 384;
  const at::Tensor x = at::ones({n, n}), w = at::ones({n, n});
  return mean_over_ranks(world, typical_seconds(0.5, [&] { (void)kernels::linear(x, w); }));
}

/// Slowdown of products while another thread gathers.
double measure_contention(const mpi::Communicator& world) {
  const double alone = products_seconds(world);
  const mpi::Communicator apart = world.duplicate();
  const auto collectives = comm::make_collectives(apart, mesh::Group::shard, Lane::gather, {});
  std::atomic<bool> enough = false;
  std::thread beside([&] {
    constexpr std::int64_t elements = 1 << 18;
    std::vector<float> whole(static_cast<std::size_t>(elements * world.size()), 1.0F);
    // Every rank leaves after the same gather: the one before which all had finished.
    for (std::vector<double> working{1.0}; working.front() > 0;) {
      collectives->all_gather(whole.data() + elements * world.rank(), whole.data(), elements, DType::fp32);
      working.front() = enough ? 0.0 : 1.0;
      collectives->sum(working);
    }
  });
  const double busy = products_seconds(world);
  enough = true;
  beside.join();
  return std::clamp(busy / alone - 1, 0.0, 5.0);
}

}  // namespace

void measure_links(planner::Machine& machine, const mpi::Communicator& world) {
  const mpi::Topology topology = mpi::probe_topology(world);
  machine.gpus_per_node = topology.node_ranks;
  machine.measured_nodes = topology.nodes;
  machine.lane_threads = topology.node_cores > topology.node_ranks ? 1 : 0;
  const mpi::Communicator node = world.node();
  if (topology.node_ranks > 1) machine.inside = measure_link(machine, node);
  if (topology.nodes > 1) machine.between = measure_link(machine, world);
  machine.contention = world.size() > 1 && machine.lane_threads > 0 ? measure_contention(world) : 0;
}

}  // namespace trireme::cli
