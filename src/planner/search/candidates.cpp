// SPDX-License-Identifier: Apache-2.0
#include "planner/search/candidates.hpp"

#include <algorithm>

namespace trireme::planner {
namespace {

using config::RunConfig;
using config::SyncPolicy;

constexpr std::int64_t most_sequences = 32;  ///< of a microbatch

/// 1, 2, 4, ... up to `most`, where they divide `number`.
std::vector<std::int64_t> powers(std::int64_t number, std::int64_t most) {
  std::vector<std::int64_t> out;
  for (std::int64_t size = 1; size <= most && number % size == 0; size *= 2) out.push_back(size);
  return out;
}

/// Shard axes: all data-parallel ranks, or hybrid sharding: whole nodes, and powers of two of one.
std::vector<std::int64_t> shard_sizes(std::int64_t data_parallel, std::int64_t per_node) {
  std::vector<std::int64_t> out{data_parallel};
  for (std::int64_t size = 1; size < data_parallel; size = size < per_node ? size * 2 : size + per_node)
    if (data_parallel % size == 0 && (size <= per_node || size % per_node == 0)) out.push_back(size);
  return out;
}

/// Divisors of a rank's sequences in a step; all up to 8, then powers of two.
std::vector<std::int64_t> microbatches(std::int64_t sequences) {
  std::vector<std::int64_t> out;
  for (std::int64_t micro = 1; micro <= std::min(sequences, most_sequences); micro = micro < 8 ? micro + 1 : micro * 2)
    if (sequences % micro == 0) out.push_back(micro);
  return out;
}

/// One, the run file's, and if there are several nodes 2, 4, ... up to as many as there are layers.
std::vector<std::int64_t> pipeline_sizes(const RunConfig& config, std::int64_t ranks, std::int64_t per_node) {
  constexpr std::int64_t most = 8;
  std::vector<std::int64_t> out{1};
  constexpr std::int64_t least_layers = 2;  // of a rank
  for (std::int64_t size = 2; ranks > per_node && size <= most && ranks % size == 0; size *= 2)
    if (config.model.layers >= least_layers * size) out.push_back(size);
  if (std::find(out.begin(), out.end(), config.mesh.pipeline) == out.end()) out.push_back(config.mesh.pipeline);
  return out;
}

/// One, the run file's, and where a sequence is long 2, 4, ... within a node, with which each rank keeps many tokens.
std::vector<std::int64_t> context_sizes(const RunConfig& config, std::int64_t ranks, std::int64_t per_node) {
  constexpr std::int64_t least_tokens = 8192;  // of a rank: with fewer a microbatch of one sequence is small enough
  std::vector<std::int64_t> out{1};
  for (std::int64_t size = 2; size <= per_node && ranks % size == 0; size *= 2)
    if (config.data.seq_len / size >= least_tokens) out.push_back(size);
  if (std::find(out.begin(), out.end(), config.mesh.context) == out.end()) out.push_back(config.mesh.context);
  return out;
}

/// The run file's schedule if it has a pipeline, else two that are widely used.
std::vector<config::Pipeline> pipelines(const RunConfig& config, std::int64_t size) {
  if (size == 1 || size == config.mesh.pipeline) return {config.pipeline};
  std::vector<config::Pipeline> out;
  for (const auto kind : {config::PipelineKind::one_f_one_b, config::PipelineKind::interleaved})
    out.push_back({.schedule = kind, .chunks = std::nullopt, .layers = {}});
  return out;
}

struct SyncChoice {
  SyncPolicy policy;
  std::int64_t after_forward;  ///< 0: reshard, 1: keep, else to groups of this size
  bool after_backward;
};

/// Without those that do the same: one microbatch is reduced once anyway, one rank gathers nothing.
std::vector<SyncChoice> sync_choices(std::int64_t shard, std::int64_t accumulation, std::int64_t per_node) {
  std::vector<std::pair<std::int64_t, bool>> reshard{{1, true}};
  if (shard > 1 && accumulation > 1) reshard.emplace_back(1, false);
  if (shard > 1) reshard.emplace_back(0, true);
  if (shard > per_node && per_node > 1 && shard % per_node == 0) reshard.emplace_back(per_node, true);
  std::vector<SyncChoice> out;
  for (const auto& [after_forward, after_backward] : reshard) {
    out.push_back({SyncPolicy::immediate, after_forward, after_backward});
    if (accumulation > 1) out.push_back({SyncPolicy::deferred, after_forward, after_backward});
  }
  return out;
}

/// In a pipeline parameters are kept: gathered for every microbatch they would move far more than it saves.
std::vector<SyncChoice> sync_choices_of_pipeline() {
  return {{SyncPolicy::deferred, 1, false}, {SyncPolicy::immediate, 1, false}};
}

/// Expert sizes of a model with experts: 1, 2, 4, ... within a node, divisors of their number. per_node: ranks of a
/// node, excluding tensor and context ranks.
std::vector<std::int64_t> expert_sizes(const RunConfig& config, std::int64_t shard, std::int64_t per_node) {
  const config::Mesh& mesh = config.mesh;
  const std::int64_t experts = config.model.dense_layers < config.model.layers ? config.model.experts : 0;
  if (experts == 0 || config.device.cuda_graphs) return {1};
  const std::int64_t fold = shard * mesh.context * mesh.tensor;
  std::vector<std::int64_t> out = powers(fold, std::min(per_node * mesh.context * mesh.tensor, experts));
  std::erase_if(out, [&](std::int64_t size) { return experts % size != 0; });
  const bool given = fold % mesh.expert == 0 && std::find(out.begin(), out.end(), mesh.expert) == out.end();
  if (given) out.push_back(mesh.expert);
  return out;
}

std::vector<Savings> make_savings() {
  std::vector<Savings> out;
  for (int recompute = 0; recompute < 4; ++recompute)
    for (int offload = 0; offload < 3; ++offload)
      for (int activations = 0; activations < 2; ++activations)
        out.push_back({.recompute = recompute, .offload = offload, .activations = activations});
  return out;
}

}  // namespace

namespace {

/// Choices of a group in addition to its mesh and microbatch: how it synchronizes, and its expert ranks. With these,
/// parameters are not resharded to groups.
std::vector<std::pair<SyncChoice, std::int64_t>> choices_of(const RunConfig& config, std::int64_t shard,
                                                            std::int64_t accumulation, std::int64_t per_node) {
  std::vector<std::pair<SyncChoice, std::int64_t>> out;
  for (const SyncChoice& sync :
       config.mesh.pipeline > 1 ? sync_choices_of_pipeline() : sync_choices(shard, accumulation, per_node))
    for (const std::int64_t expert : expert_sizes(config, shard, per_node)) {
      const bool of_experts = expert > 1 || (config.model.experts > 0 && config.mesh.tensor > 1);
      if (!of_experts || sync.after_forward <= 1) out.emplace_back(sync, expert);
    }
  return out;
}

/// All groups with one size of the pipeline and one of the tensor axis.
void add_groups(std::vector<RunConfig>& out, const RunConfig& config, std::int64_t data_parallel,
                std::int64_t per_node) {
  if (config.batch.global % data_parallel != 0) return;
  const bool pipelined = config.mesh.pipeline > 1;
  const std::int64_t sequences = config.batch.global / data_parallel;
  // Between pipeline ranks little is left to shard: hybrid sharding has nothing to gain there.
  for (const std::int64_t shard : pipelined ? std::vector{data_parallel} : shard_sizes(data_parallel, per_node))
    for (const std::int64_t micro : microbatches(sequences)) {
      // A pipeline that is not full idles.
      if (pipelined && (sequences / micro < config.mesh.pipeline || micro > 4)) continue;
      for (const auto& [sync, expert] : choices_of(config, shard, sequences / micro, per_node)) {
        RunConfig candidate = config;
        candidate.mesh.expert = expert;
        if (expert == 1) candidate.mesh.expert_room = config::Mesh{}.expert_room;
        candidate.mesh.replicate = data_parallel / shard;
        if (config.mesh.shard > 0) candidate.mesh.shard = shard;  // else the ranks left, which are as many
        candidate.batch.micro = micro;
        candidate.sync.policy = sync.policy;
        candidate.sync.reshard_after_forward = sync.after_forward;
        candidate.sync.reshard_after_backward = sync.after_backward;
        out.push_back(with(std::move(candidate), {}));
      }
    }
}

}  // namespace

std::vector<RunConfig> candidate_groups(const RunConfig& config, int ranks, const Machine& machine) {
  RunConfig flat = config;
  flat.mesh.replicate = flat.mesh.tensor = flat.mesh.context = flat.mesh.pipeline = flat.mesh.expert = 1;
  flat.mesh.shard = -1;
  flat.batch.micro = 1;
  flat.batch.global = ranks;  // for any batch: the number of ranks left by the other axes
  flat.sync.reshard_after_forward = 0;
  const std::int64_t left = config::resolve(flat, ranks).shard;
  const auto node = static_cast<std::int64_t>(machine.gpus_per_node);
  std::vector<RunConfig> out;
  for (const std::int64_t pipeline : pipeline_sizes(config, left, node))
    for (const std::int64_t context : context_sizes(config, left / pipeline, node))
      for (const std::int64_t tensor :
           powers(left / pipeline / context, std::min<std::int64_t>(node / context, config.model.heads)))
        for (const config::Pipeline& schedule : pipelines(config, pipeline)) {
          RunConfig candidate = config;
          candidate.pipeline = schedule;
          candidate.mesh.pipeline = pipeline;
          candidate.mesh.context = context;
          candidate.mesh.tensor = tensor;
          if (tensor == 1 || config.mesh.tensor == 1) candidate.mesh.sequence_parallel = tensor > 1;
          add_groups(out, candidate, left / pipeline / context / tensor,
                     std::max<std::int64_t>(1, node / context / tensor));
        }
  return out;
}

const std::vector<Savings>& savings_of(const RunConfig& group) {
  static const std::vector<Savings> of_pipelines{{}, {.recompute = 1}, {.recompute = 3}};
  return group.mesh.pipeline > 1 ? of_pipelines : all_savings();
}

const std::vector<Savings>& all_savings() {
  static const std::vector<Savings> all = make_savings();
  return all;
}

RunConfig with(RunConfig config, const Savings& savings) {
  using config::Offload;
  using config::Recompute;
  config.memory.recompute = savings.recompute == 0   ? Recompute::none
                            : savings.recompute == 1 ? Recompute::selective
                                                     : Recompute::block;
  config.memory.recompute_every = savings.recompute == 2 ? 2 : 1;
  config.memory.offload = savings.offload == 0   ? Offload::none
                          : savings.offload == 1 ? Offload::optimizer
                                                 : Offload::parameters;
  config.memory.offload_fraction = 1;
  config.memory.activation_offload = savings.activations == 1;
  return config;
}

}  // namespace trireme::planner
