// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/time/fit.hpp"

#include <algorithm>
#include <tuple>

namespace trireme::planner {
namespace {

constexpr double usable = 0.9;

Bytes part_of_memory(Bytes whole) { return {static_cast<std::int64_t>(usable * static_cast<double>(whole.value))}; }

/// Memory of ranks [first, last) together; `stride` consecutive ranks belong to one pipeline rank.
NodeMemory sum_of(const std::vector<Memory::InHost>& by_pipeline_rank, std::int64_t stride, std::int64_t first,
                  std::int64_t last) {
  NodeMemory sum{.ranks = static_cast<int>(last - first)};
  for (std::int64_t stage = first / stride; stage * stride < last; ++stage) {
    const std::int64_t ranks = std::min(last, (stage + 1) * stride) - std::max(first, stage * stride);
    const Memory::InHost& each = by_pipeline_rank[static_cast<std::size_t>(stage)];
    sum.bytes += Bytes{each.bytes.value * ranks};
    sum.copies += Bytes{each.copies.value * ranks};
  }
  return sum;
}

}  // namespace

Bytes memory_limit(const config::RunConfig& config, const Machine& machine) {
  return config.memory.budget ? *config.memory.budget : part_of_memory(machine.memory);
}

std::optional<Bytes> host_memory_limit(const Machine& machine) {
  if (machine.node_memory.value == 0) return std::nullopt;
  return part_of_memory(machine.node_memory);
}

NodeMemory host_memory_of_node(const Memory& memory, const config::Resolved& mesh, const Machine& machine) {
  const std::int64_t all = mesh.ranks(), node = std::min(all, static_cast<std::int64_t>(machine.gpus_per_node));
  std::vector<Memory::InHost> ranks = memory.by_pipeline_rank;
  if (ranks.empty()) ranks.push_back(memory.in_host());
  const auto stages = static_cast<std::int64_t>(ranks.size()), stride = all / stages;
  NodeMemory most;
  // The nodes where a pipeline rank begins and its first full node: the others repeat one of them.
  for (std::int64_t stage = 0; stage < stages; ++stage)
    for (const std::int64_t at : {stage * stride, stage * stride + node}) {
      const std::int64_t first = std::min(at, all - 1) / node * node;
      NodeMemory of_node = sum_of(ranks, stride, first, std::min(first + node, all));
      if (std::tie(of_node.bytes, of_node.ranks) > std::tie(most.bytes, most.ranks)) most = of_node;
    }
  return most;
}

Fit fit_of(const config::RunConfig& config, const Memory& memory, const config::Resolved& mesh,
           const Machine& machine) {
  const std::optional<Bytes> limit = host_memory_limit(machine);
  return {.device = memory.total() <= memory_limit(config, machine),
          .host = !limit || host_memory_of_node(memory, mesh, machine).bytes <= *limit};
}

}  // namespace trireme::planner
