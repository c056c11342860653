// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>
#include <variant>

#include "planner/coming_and_going.hpp"
#include "planner/verb_bytes.hpp"
#include "planner/workspace.hpp"
#include "trireme/base/text_table.hpp"
#include "trireme/schedule/access.hpp"
#include "trireme/schedule/buffers.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::planner {
namespace {

Bytes times(std::int64_t elements, std::int64_t each) { return {elements * each}; }

/// Buffers of `elements(layout of a block)` elements, as many as each ring has.
template <class Elements>
Bytes ring_bytes(const std::vector<int>& sizes, const model::Model& model, const shard::Layout& layout,
                 std::int64_t element_bytes, Elements elements) {
  const std::vector<int> ring_of = schedule::rings(model);
  Bytes total;
  for (std::size_t ring = 0; ring < sizes.size(); ++ring) {
    const auto member =
        static_cast<int>(std::find(ring_of.begin(), ring_of.end(), static_cast<int>(ring)) - ring_of.begin());
    total += times(elements(layout[ParamBlock{member}]) * sizes[ring], element_bytes);
  }
  return total;
}

Bytes gathered_ring_bytes(const std::vector<int>& sizes, const model::Model& model, const shard::Layout& layout,
                          std::int64_t element_bytes) {
  return ring_bytes(sizes, model, layout, element_bytes,
                    [](const shard::BlockLayout& block) { return block.gathered(); });
}

Bytes shard_ring_bytes(const std::vector<int>& sizes, const model::Model& model, const shard::Layout& layout,
                       std::int64_t element_bytes) {
  return ring_bytes(sizes, model, layout, element_bytes,
                    [](const shard::BlockLayout& block) { return block.shard_elements(); });
}

/// The pipeline rank that an op sends to or receives from; -1: none.
int peer_of(const schedule::Op& op) {
  if (const auto* send = std::get_if<schedule::Send>(&op)) return send->peer;
  if (const auto* receive = std::get_if<schedule::Receive>(&op)) return receive->peer;
  return -1;
}

/// Adds masters, compute shards, gradient shards and optimizer states of every block, on device or host.
void shards(Memory& memory, const schedule::Schedule& schedule, const model::Model& model, const shard::Layout& layout,
            const ReplayOptions& replay_options) {
  const std::vector<schedule::OnHost> where = schedule::on_host(schedule, model);
  const std::vector<bool> transient = schedule::transient_gradients(schedule, model);
  const std::int64_t compute_bytes = size_of(replay_options.compute);
  for (int b = 0; b < layout.blocks(); ++b) {
    const std::int64_t elements = layout[ParamBlock{b}].shard_elements();
    const schedule::OnHost home = where[static_cast<std::size_t>(b)];
    const bool host = home != schedule::OnHost::nothing;
    (host ? memory.host.parameters_sharded : memory.parameters_sharded) +=
        times(elements, replay_options.compute == DType::fp32                   ? 4
                        : replay_options.split_masters && replay_options.trains ? 2 + compute_bytes
                                                                                : 4 + compute_bytes);
    if (home == schedule::OnHost::optimizer) memory.parameters_sharded += times(elements, compute_bytes);
    if (!replay_options.trains) continue;
    if (!transient[static_cast<std::size_t>(b)])
      (host ? memory.host.gradients_sharded : memory.gradients_sharded) += times(elements, 4);
    (host ? memory.host.optimizer : memory.optimizer) +=
        replay_options.optimizer.state_bytes(model[ParamBlock{b}], layout[ParamBlock{b}]);
  }
  if (!replay_options.trains || !replay_options.optimizer.matrices()) return;
  const optimizer::OwnerPlan owners(model, layout, *replay_options.optimizer.matrices());
  memory.optimizer += owners.buffer_bytes(owners.rank_of(replay_options.shard_rank));
}

/// Memory of a process on a GPU for its context and loaded kernels.
constexpr Bytes cuda_own{std::int64_t{512} << 20};
/// NCCL 2.28: 9.2 MiB for a neighbour and channel (4 MiB of Simple, 4.7 of LL128, 0.5 of LL), 24 channels on NVLink.
constexpr Bytes nccl_own{std::int64_t{224} << 20};

}  // namespace

ExpertRows ReplayOptions::rows_of(const model::Model& model, Block block, Microbatch m) const {
  if (const auto found = recorded_rows.find({block, m}); found != recorded_rows.end()) return found->second;
  const int ranks = model.part.experts.ranks;
  const std::int64_t here = stream_tokens(model), mine = here * model.sizes.decoder.experts->per_token;
  const std::int64_t away = mine * (ranks - 1) / ranks;
  if (routing == Routing::worst) {
    // A token chooses an expert once: a rank receives at most as many of its rows as it has experts.
    const model::Experts& experts = *model.sizes.decoder.experts;
    const std::int64_t most = here * std::min(experts.per_token, model.part.experts.held(experts.count));
    return {.received = most * ranks, .sent = mine, .fetched = most * (ranks - 1)};
  }
  const auto planned = static_cast<std::int64_t>(std::ceil(static_cast<double>(mine) * expert_room));
  return {.received = routing == Routing::bound ? planned : mine, .sent = away, .fetched = away};
}

Bytes Memory::total() const {
  return parameters_sharded + parameters_unsharded + parameters_resharded + gradients_unsharded + optimizer +
         std::max({at_once.most, at_once.with_most_activations, at_once.with_most_gradients}) + communication +
         workspace + product_workspace;
}

Memory replay_memory(const schedule::Schedule& schedule, const model::Model& model, const shard::Layout& layout,
                     const ReplayOptions& replay_options) {
  const schedule::RingSizes rings = schedule::ring_sizes(schedule, model);
  Memory memory;
  memory.on_gpu = replay_options.on_gpu;
  shards(memory, schedule, model, layout, replay_options);
  const std::int64_t width = size_of(replay_options.compute);
  memory.parameters_sharded += shard_ring_bytes(rings.uploads, model, layout, width);
  memory.parameters_unsharded = gathered_ring_bytes(rings.parameters, model, layout, size_of(replay_options.compute));
  const std::int64_t stream = replay_options.stream_tokens(model) * model.sizes.hidden;
  memory.communication = times(stream * (rings.sends + rings.receives), width);
  if (replay_options.on_gpu) memory.product_workspace = product_workspace(model, replay_options);
  if (!replay_options.trains) return memory;
  if (const auto group = schedule::reshard_group(schedule))
    memory.parameters_resharded = times(layout.padded() / *group, size_of(replay_options.compute));
  if (replay_options.saves_beside) memory.host.other = replay_options.optimizer.saved_bytes(model, layout);
  memory.gradients_sharded += shard_ring_bytes(rings.downloads, model, layout, 4);
  if (schedule::has_partial(schedule) || replay_options.reduce == config::Reduce::bf16) {
    std::int64_t largest = 0;
    for (int b = 0; b < layout.blocks(); ++b) largest = std::max(largest, layout[ParamBlock{b}].shard_elements());
    memory.gradients_sharded += times(largest, 4);
  }
  memory.gradients_unsharded = gathered_ring_bytes(rings.gradients, model, layout, 4);
  if (replay_options.on_gpu) {
    const Workspace workspace = largest_workspace(model, replay_options);
    memory.workspace = workspace.bytes;
    memory.workspace_of = workspace.of;
    memory.workspace_peak = workspace.during;
  }
  VerbBytes bytes(model, layout, replay_options);
  ComingAndGoing coming_and_going(schedule, layout, memory.gradients_sharded);
  // Groups and lanes whose ranks exchange tensors; a pipeline has a communicator for each neighbour and direction.
  std::set<std::tuple<std::string_view, schedule::Lane, int>> exchanged;
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    const OpBytes of_op = bytes.of(schedule.ops[i]);
    for (const Transfer& transfer : of_op.transfers)
      if (transfer.group != "host" && transfer.bytes.value > 0)
        exchanged.emplace(transfer.group, schedule::lane_of(schedule.ops[i]), peer_of(schedule.ops[i]));
    if (std::holds_alternative<schedule::Receive>(schedule.ops[i]))  // its bytes are its sender's
      exchanged.emplace("pipeline", schedule::Lane::receive, peer_of(schedule.ops[i]));
    const Bytes most = of_op.activations;
    coming_and_going.during(schedule.ops[i], most, memory.at_once);
    memory.host.activations = std::max(memory.host.activations, bytes.activations_on_host());
    if (most <= memory.activations) continue;
    memory.activations = most;
    memory.activations_peak_op = static_cast<int>(i);
  }
  if (replay_options.on_gpu) {
    memory.nccl_communicators = static_cast<int>(exchanged.size());
    memory.outside = {cuda_own.value + memory.nccl_communicators * nccl_own.value};
  }
  memory.gradients_sharded = coming_and_going.most_gradients();
  const auto text = [&](int op) { return schedule::print(schedule.ops[static_cast<std::size_t>(op)], model); };
  if (memory.activations.value > 0) memory.activations_peak = text(memory.activations_peak_op);
  if (memory.at_once.most.value > 0) memory.peak = text(memory.at_once.op);
  return memory;
}

model::TensorPart tensor_part(const config::RunConfig& config, const config::Resolved& mesh, int rank, int context_rank,
                              int expert_rank) {
  return {.rank = rank,
          .ranks = mesh.tensor,
          .sequence_parallel = mesh.tensor > 1 && config.mesh.sequence_parallel.value_or(true),
          .context = {.rank = context_rank, .ranks = mesh.context, .method = config.context.method},
          .experts = {.rank = expert_rank, .ranks = mesh.expert, .needs_loads = config.loss.balance_loss > 0},
          .fp8 = {.recipe = config.precision.fp8, .skip = config.precision.fp8_skip}};
}

config::RunConfig computing_on(config::RunConfig config, bool gpu) {
  if (config.device.type == config::DeviceType::automatic)
    config.device.type = gpu ? config::DeviceType::cuda : config::DeviceType::cpu;
  return config;
}

ReplayOptions replay_options_of(const config::RunConfig& config, const config::Resolved& mesh) {
  return {.compute = config.precision.compute,
          .reduce = config.precision.reduce,
          .split_masters = config.precision.masters == config::Masters::split,
          .optimizer = optimizer::OptimizerPlan(config),
          .tokens = config.batch.micro * config.data.seq_len / mesh.context,
          .sequences = config.batch.micro,
          .replicas = mesh.replicate,
          .on_gpu = config.device.type == config::DeviceType::cuda,
          .loss_chunk_tokens = config.loss.chunk_tokens,
          .saves_beside =
              config.checkpoint.async && config.checkpoint.every > 0 && config.checkpoint.every < config.train.steps,
          .expert_room = config.mesh.expert_room};
}

Traffic replay_traffic(const schedule::Schedule& schedule, const model::Model& model, const shard::Layout& layout,
                       const ReplayOptions& replay_options) {
  VerbBytes bytes(model, layout, replay_options);
  Traffic traffic;
  for (const schedule::Op& op : schedule.ops)
    for (const Transfer& transfer : bytes.of(op).transfers) {
      Moved& moved = traffic[std::string(transfer.group)][std::string(transfer.operation)];
      moved.bytes += transfer.bytes;
      ++moved.calls;
    }
  return traffic;
}

std::string to_text(const Memory& memory) {
  TextTable table({"memory of one rank", "peak", "during"});
  const auto add = [&](const std::string& name, Bytes bytes, const std::string& during = "all the step") {
    table.add({name, to_text(bytes), bytes.value > 0 ? during : ""});
  };
  add("parameters.sharded", memory.parameters_sharded);
  add("parameters.unsharded", memory.parameters_unsharded);
  add("parameters.resharded", memory.parameters_resharded);
  add("gradients.sharded", memory.gradients_sharded);
  add("gradients.unsharded", memory.gradients_unsharded);
  add("optimizer", memory.optimizer);
  add("activations", memory.activations, memory.activations_peak);
  if (memory.communication.value > 0) add("communication: pipeline slots", memory.communication);
  if (memory.workspace.value > 0) add("workspace: " + memory.workspace_of, memory.workspace, memory.workspace_peak);
  if (memory.product_workspace.value > 0) add("workspace: matrix products", memory.product_workspace);
  add("activations and gradients.sharded at once", memory.at_once.most, memory.peak);
  add("total", memory.total(), memory.peak.empty() ? "all the step" : memory.peak);
  if (memory.outside.value > 0)
    add("outside of memory.budget", memory.outside,
        fmt::format("estimate: CUDA, {} NCCL communicator{}", memory.nccl_communicators,
                    memory.nccl_communicators == 1 ? "" : "s"));
  if (memory.host.total().value == 0) return table.str();
  const auto add_host = [&](const char* category, Bytes bytes, const char* when) {
    if (bytes.value > 0) add(fmt::format("in host memory: {}", category), bytes, when);
  };
  add_host("parameters.sharded", memory.host.parameters_sharded, "all the step");
  add_host("gradients.sharded", memory.host.gradients_sharded, "all the step");
  add_host("optimizer", memory.host.optimizer, "all the step");
  add_host("activations", memory.host.activations, "forward to backward");
  add_host("other", memory.host.other, "copies for checkpoint.async");
  add("in host memory: total", memory.host.total(), "");
  return table.str();
}

std::string rows_text(const schedule::Schedule& schedule, const model::Model& model, const shard::Layout& layout,
                      ReplayOptions replay_options) {
  TextTable table({"activations by load of the experts", "peak"});
  for (const auto& [routing, name] :
       {std::pair{Routing::balanced, std::string("balanced")},
        {Routing::bound, fmt::format("planned: {} times balanced", replay_options.expert_room)},
        {Routing::worst, "worst: all tokens to one rank's experts"}}) {
    replay_options.routing = routing;
    table.add({name, to_text(replay_memory(schedule, model, layout, replay_options).activations)});
  }
  return table.str();
}

std::string to_text(const Traffic& traffic) {
  TextTable table({"traffic of one rank and step", "calls", "bytes", ""});
  for (const auto& [group, operations] : traffic)
    for (const auto& [operation, moved] : operations)
      table.add({group + " " + operation, std::to_string(moved.calls), std::to_string(moved.bytes.value),
                 to_text(moved.bytes)});
  return table.str();
}

}  // namespace trireme::planner
