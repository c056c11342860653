// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/time/percentiles.hpp"

#include <algorithm>
#include <utility>

namespace trireme::planner {
namespace {

constexpr double compute_spread = 0.05;

void slow_down(Link& link, double factor) {
  link.latency *= factor;
  link.rank_latency *= factor;
  link.bandwidth /= factor;
}

}  // namespace

Machine with_compute_rate(Machine machine, double factor) {
  for (ProductRate& rate : machine.products) rate.rate *= factor;
  machine.attention_flops *= factor;
  machine.memory_bandwidth *= factor;
  return machine;
}

Machine with_shared_cores(Machine machine, const config::RunConfig& config, int ranks) {
  const double of_node = std::min<double>(ranks, machine.gpus_per_node);
  if (config.device.type == config::DeviceType::cuda || machine.cores == 0 || of_node < machine.cores) return machine;
  machine.lane_threads = 0;  // no core is spare
  const double part = machine.cores / of_node;
  machine = with_compute_rate(std::move(machine), part);
  machine.host_memory_bandwidth *= part;
  machine.layer_seconds /= part;
  machine.step_seconds /= part;
  return machine;
}

Machine at_percentile(Machine machine, Percentile percentile) {
  const bool fast = percentile == Percentile::p10;
  for (Link Machine::*link : {&Machine::inside, &Machine::between})
    slow_down(machine.*link, fast ? (machine.*link).spread.p10 : (machine.*link).spread.p90);
  return with_compute_rate(std::move(machine), 1 / (fast ? 1 - compute_spread : 1 + compute_spread));
}

}  // namespace trireme::planner
