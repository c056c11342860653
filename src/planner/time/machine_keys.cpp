// SPDX-License-Identifier: Apache-2.0
#include "planner/time/machine_keys.hpp"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "trireme/base/error.hpp"

namespace trireme::planner {
namespace {

std::vector<MachineKey> link_keys(std::string_view section, Link Machine::*link, bool required) {
  return {
      {section, "latency_us", 1e-6, 0, 1e6, required, [link](Machine& m) -> double& { return (m.*link).latency; },
       "per collective"},
      {section, "rank_latency_us", 1e-6, 0, 1e6, false,
       [link](Machine& m) -> double& { return (m.*link).rank_latency; }, "per collective and rank after the first"},
      {section, "bandwidth_gb_s", 1e9, 1e-3, 1e5, required,
       [link](Machine& m) -> double& { return (m.*link).bandwidth; },
       "inside: ring bandwidth of one rank; between: of all adapters of a node"},
      {section, "p10", 1, 0.01, 1, false, [link](Machine& m) -> double& { return (m.*link).spread.p10; },
       "time over the expected time, one run of ten is faster"},
      {section, "p90", 1, 1, 100, false, [link](Machine& m) -> double& { return (m.*link).spread.p90; },
       "time over the expected time, one run of ten is slower"},
  };
}

std::vector<MachineKey> all_keys() {
  using M = Machine;
  std::vector<MachineKey> keys{
      {"machine", "gpus_per_node", 1, 1, 1024, true, [](M& m) -> double& { return m.gpus_per_node; },
       "ranks of one node"},
      {"machine", "cores", 1, 0, 1e5, false, [](M& m) -> double& { return m.cores; },
       "of a node, which CPU ranks share: with more ranks than cores all are slower; 0: not limited"},
      {"machine", "measured_nodes", 1, 1, 1e6, false, [](M& m) -> double& { return m.measured_nodes; },
       "nodes of the largest job that the links were measured on"},
      {"gpu", "peak_tflops", 1e12, 1e-4, 1e5, true, [](M& m) -> double& { return m.peak_flops; },
       "data sheet, bf16, dense: MFU divides by it"},
      {"gpu", "fp32_factor", 1, 1e-3, 10, false, [](M& m) -> double& { return m.fp32_factor; },
       "rate of fp32 products over bf16 ones"},
      {"gpu", "fp8_factor", 1, 0, 10, false, [](M& m) -> double& { return m.fp8_factor; },
       "rate of fp8 products over bf16 ones; 0: GPUs without them"},
      {"gpu", "attention_tflops", 1e12, 1e-5, 1e5, true, [](M& m) -> double& { return m.attention_flops; },
       "achieved, causal half counted, times head_dim / (head_dim + 16)"},
      {"gpu", "memory_tb_s", 1e12, 1e-4, 1e3, true, [](M& m) -> double& { return m.memory_bandwidth; },
       "achieved by kernels that only move bytes"},
      {"gpu", "board_watts", 1, 0, 1e5, false, [](M& m) -> double& { return m.board_watts; },
       "power limit of one GPU that the rates were achieved with"},
      {"gpu", "watts", 1, 0, 1e5, false, [](M& m) -> double& { return m.watts; },
       "of one GPU and its part of the node, at load"},
      {"gpu", "contention", 1, 0, 5, false, [](M& m) -> double& { return m.contention; },
       "seconds that compute loses per second of concurrent communication"},
      {"host", "node_bandwidth_gb_s", 1e9, 0, 1e6, false, [](M& m) -> double& { return m.node_bandwidth; },
       "of a node's memory, which copies and updates of its ranks share; 0: unknown"},
      {"host", "bandwidth_gb_s", 1e9, 1e-3, 1e5, true, [](M& m) -> double& { return m.host_bandwidth; },
       "copies between a GPU and host memory, each way"},
      {"host", "memory_gb_s", 1e9, 1e-3, 1e5, true, [](M& m) -> double& { return m.host_memory_bandwidth; },
       "host memory as one rank's update reads and writes it"},
      {"host", "layer_ms", 1e-3, 0, 1e4, false, [](M& m) -> double& { return m.layer_seconds; },
       "launch time of one layer, forward and backward"},
      {"host", "step_ms", 1e-3, 0, 1e6, false, [](M& m) -> double& { return m.step_seconds; },
       "per step, for all that is not modelled"},
      {"host", "lane_threads", 1, 0, 1, false, [](M& m) -> double& { return m.lane_threads; },
       "CPU ranks: 1 where communication has a separate core, 0 where one thread does all"},
      {"job", "gpu_mtbf_hours", 3600, 0, 1e9, false, [](M& m) -> double& { return m.gpu_mtbf; },
       "between failures that end a job, of one GPU and its part of the node"},
      {"job", "restart_minutes", 60, 0, 1e5, false, [](M& m) -> double& { return m.restart_seconds; },
       "from a failure to the first new step, loading not counted"},
      {"job", "checkpoint_minutes", 60, 0, 1e5, false, [](M& m) -> double& { return m.least_save_interval; },
       "shortest time between saves that is suggested; 0: any"},
      {"job", "node_storage_gb_s", 1e9, 0, 1e5, false, [](M& m) -> double& { return m.node_storage_bandwidth; },
       "that one node writes to the file system"},
      {"job", "storage_gb_s", 1e9, 0, 1e6, false, [](M& m) -> double& { return m.storage_bandwidth; },
       "that a whole job writes to the file system"},
  };
  for (const auto& [section, link, required] :
       {std::tuple{"inside", &Machine::inside, true}, std::tuple{"between", &Machine::between, true}})
    for (MachineKey& key : link_keys(section, link, required)) keys.push_back(std::move(key));
  return keys;
}

}  // namespace

std::span<const MachineKey> machine_keys() {
  static const std::vector<MachineKey> keys = all_keys();
  return keys;
}

void expect_rates(const Machine& machine) {
  const auto expect = [&](std::string_view section, std::string_view key, double value) {
    if (std::isfinite(value) && value > 0) return;
    throw ConfigError(fmt::format(
        "machine \"{}\": {}.{} is {}; a rate is finite and above 0. Set it in the machine file, or calibrate again",
        machine.name, section, key, value));
  };
  if (machine.products.empty()) expect("gpu", "products", 0);
  for (const ProductRate& rate : machine.products) expect("gpu", "products", rate.rate);
  Machine copy = machine;
  for (const MachineKey& key : machine_keys())
    if (key.least > 0) expect(key.section, key.key, key.member(copy));
}

}  // namespace trireme::planner
