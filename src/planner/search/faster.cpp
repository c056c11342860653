// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/search/faster.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"
#include "trireme/base/text_table.hpp"
#include "trireme/planner/advice.hpp"
#include "trireme/planner/search/search.hpp"

namespace trireme::planner {
namespace {

constexpr PredictOptions one_of_many{.percentiles = false, .few_layers = true, .memory = false};
constexpr double least_gain = 0.01;

struct FasterChange {
  std::vector<std::string> lines;
  std::string note{};
};

/// On GPUs all reductions but those in fp32 are Trireme's own, which sum in rank order.
std::string all_to_all_note(const config::RunConfig& config, int ranks, const Machine& machine) {
  const config::Resolved mesh = config::resolve(config, ranks);
  const Group group = group_of(mesh.shards(), mesh.tensor, static_cast<int>(machine.gpus_per_node));
  if (!group.crosses_nodes() || group.per_node == 1) return "NCCL's ring instead of an all-to-all";
  return fmt::format("NCCL's ring instead of an all-to-all, which sends {} times as much between nodes",
                     group.per_node / 2.0);
}

/// With a few layers if these are too large already, as all of them then are; else with all.
Memory memory_of(const config::RunConfig& config, int ranks, Bytes limit) {
  const config::Resolved mesh = config::resolve(config, ranks);
  Memory few = predict_memory(config, mesh, /*few_layers=*/true);
  return few.total() > limit ? few : predict_memory(config, mesh);
}

std::vector<FasterChange> faster_changes(const config::RunConfig& config, int ranks, const Machine& machine) {
  std::vector<FasterChange> out;
  for (const char* policy : {"immediate", "deferred"})
    for (const auto& [forward, backward] : {std::pair{"false", "false"}, {"false", "true"}, {"true", "true"}})
      out.push_back(
          {{fmt::format("sync.policy = \"{}\"", policy), fmt::format("sync.reshard_after_forward = {}", forward),
            fmt::format("sync.reshard_after_backward = {}", backward)}});
  for (const int times : {2, 4, 8}) out.push_back({{fmt::format("batch.micro = {}", times * config.batch.micro)}});
  if (config.device.type == config::DeviceType::cuda && config.precision.reduce != config::Reduce::fp32)
    out.push_back({{"precision.reduce = \"fp32\""}, all_to_all_note(config, ranks, machine)});
  out.push_back({{"memory.recompute = \"none\""}});
  out.push_back({{"memory.recompute = \"selective\""}});
  out.push_back({{"memory.offload = \"none\""}});
  out.push_back({{"memory.activation_offload = false"}});
  if (config.mesh.tensor % 2 == 0) out.push_back({{fmt::format("mesh.tensor = {}", config.mesh.tensor / 2)}});
  for (const std::int64_t replicas : {config.mesh.replicate * 2, config.mesh.replicate * 4, config.mesh.replicate * 8})
    out.push_back({{fmt::format("mesh.replicate = {}", replicas)}, "hybrid sharding: parameters in more copies"});
  return out;
}

}  // namespace

std::vector<Speedup> speedups(const config::RunConfig& config, int ranks, const Machine& machine) {
  const double now = predict(config, ranks, machine, one_of_many).tokens_per_second();
  const Bytes limit = memory_limit(config, machine);
  std::vector<Speedup> out;
  for (const FasterChange& change : faster_changes(config, ranks, machine)) {
    const auto with = changed(config, change.lines);
    if (!with || config::differences(config, *with).empty()) continue;
    try {
      const double gain = predict(*with, ranks, machine, one_of_many).tokens_per_second() / now - 1;
      if (gain < least_gain) continue;
      const Memory memory = memory_of(*with, ranks, limit);
      out.push_back({.line = join(change.lines, ", "),
                     .gain = gain,
                     .memory = memory.total(),
                     .fits = fit_of(*with, memory, config::resolve(*with, ranks), machine).both(),
                     .note = change.note});
    } catch (const ConfigError&) {  // such as a microbatch that does not divide the batch
      continue;
    }
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Speedup& a, const Speedup& b) { return a.fits != b.fits ? a.fits : a.gain > b.gain; });
  return out;
}

std::string to_text(const std::vector<Speedup>& speedups, const Machine& machine) {
  if (speedups.empty()) return "";
  constexpr std::size_t most = 8;
  TextTable table({fmt::format("to be faster on {}, one of", machine.name), "tokens/s", "memory", "", ""});
  for (std::size_t i = 0; i < std::min(most, speedups.size()); ++i) {
    const Speedup& speedup = speedups[i];
    table.add({speedup.line, fmt::format("+{:.0f}%", 100 * speedup.gain), to_text(speedup.memory),
               speedup.fits ? "fits" : "too large", speedup.note});
  }
  return table.str();
}

}  // namespace trireme::planner
