// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>

#include "config/mesh_keys.hpp"
#include "trireme/base/error.hpp"
#include "trireme/config/load.hpp"
#include "trireme/config/names.hpp"
#include "trireme/config/rules.hpp"

namespace trireme::config {

namespace {

/// Fills in the shard axis; 0 when the mesh does not fit.
std::int64_t fit_shard(const Mesh& mesh, std::int64_t ranks, Mistakes& mistakes) {
  std::int64_t others = 1;
  std::string axes;
  for (const MeshKey& key : mesh_keys) {
    const std::int64_t size = mesh.*key.size;
    if (key.axis == remaining_axis || (size == 1 && !mesh::row_of(key.axis).always_shown)) continue;
    others *= size;
    axes += fmt::format("{}mesh.{} {}", axes.empty() ? "" : " x ", mesh::to_text(key.axis), size);
  }
  if (mesh.shard == -1) {
    if (ranks % others == 0) return ranks / others;
    const std::int64_t below = ranks / others * others;
    mistakes.add(fmt::format("mesh.shard: {} = {} does not divide the {} ranks; start {}{} ranks, or change an axis",
                             axes, others, ranks, below > 0 ? fmt::format("{} or ", below) : "", below + others));
    return 0;
  }
  const std::int64_t product = others * mesh.shard;
  if (product == ranks) return mesh.shard;
  const std::string remedy =
      ranks % others == 0 ? fmt::format(", set mesh.shard = {}, or -1 for the ranks left", ranks / others) : "";
  mistakes.add(fmt::format("mesh.shard: {} x mesh.shard {} = {}, but there are {} ranks; start {} ranks{}", axes,
                           mesh.shard, product, ranks, product, remedy));
  return 0;
}

/// The number of microbatches of a step on `dp` data-parallel ranks; 0 when the batch does not fit.
std::int64_t fit_batch(const Batch& batch, std::int64_t dp, Mistakes& mistakes) {
  if (batch.global < dp) {
    mistakes.add(
        fmt::format("batch.global: {} sequences for {} data-parallel ranks: every one of them needs a sequence in each "
                    "step; set batch.global = {}, start fewer ranks, or share the layers with mesh.tensor (tensor "
                    "parallelism makes fewer data-parallel ranks)",
                    batch.global, dp, dp * batch.micro));
    return 0;
  }
  const std::int64_t unit = batch.micro * dp;
  if (batch.global % unit == 0) return batch.global / unit;
  const std::int64_t below = batch.global / unit * unit;
  const std::int64_t micro = batch.global % dp == 0 ? largest_divisor(batch.global / dp, batch.micro) : 0;
  mistakes.add(
      fmt::format("batch.global: {} is not a whole multiple of batch.micro {} x {} data-parallel ranks = {}; set "
                  "batch.global = {}{}{}",
                  batch.global, batch.micro, dp, unit, below > 0 ? fmt::format("{} or ", below) : "", below + unit,
                  micro > 0 ? fmt::format(", or batch.micro = {}", micro) : ""));
  return 0;
}

/// A step is a list of operations, some for each block and microbatch: it is held, checked and printed as a whole.
void check_length(const RunConfig& config, std::int64_t accumulation, std::int64_t dp, Mistakes& mistakes) {
  constexpr std::int64_t longest = 1 << 17;
  const std::int64_t blocks = config.model.layers + 2;
  if (accumulation <= longest / blocks) return;
  const std::int64_t most = std::max<std::int64_t>(1, longest / blocks);
  mistakes.add(
      fmt::format("batch.global: {} sequences are {} microbatches of {} on each of {} data-parallel ranks, at most {} "
                  "with {} layers; set a larger batch.micro or a smaller batch.global, or start more ranks",
                  config.batch.global, accumulation, config.batch.micro, dp, most, config.model.layers));
}

/// Requirements of the tensor axis on other sections.
void check_tensor(const RunConfig& config, Mistakes& mistakes) {
  const std::int64_t tensor = config.mesh.tensor;
  if (tensor == 1) return;
  const std::int64_t context = config.mesh.context, unit = tensor * (context > 1 ? 2 * context : 1);
  if (config.data.seq_len % (2 * context) != 0 && context > 1) return;  // check_context
  const std::int64_t tokens = config.batch.micro * config.data.seq_len / context;
  if (config.mesh.sequence_parallel.value_or(true) && tokens % tensor != 0)
    mistakes.add(fmt::format(
        "mesh.sequence_parallel: batch.micro {} x data.seq_len {}{} = {} tokens cannot be cut into mesh.tensor {} "
        "equal parts; set data.seq_len = {} or {}, or mesh.sequence_parallel = false",
        config.batch.micro, config.data.seq_len, context > 1 ? fmt::format(" / mesh.context {}", context) : "", tokens,
        tensor, std::max(unit, config.data.seq_len / unit * unit), (config.data.seq_len / unit + 1) * unit));
}

/// Requirements of the context axis on other sections.
void check_context(const RunConfig& config, Mistakes& mistakes) {
  const std::int64_t context = config.mesh.context, runs = 2 * context, length = config.data.seq_len;
  if (context == 1) return;
  if (length % runs != 0)
    mistakes.add(fmt::format(
        "mesh.context: data.seq_len {} cannot be cut into the 2 x {} = {} equal runs of {} context ranks; set "
        "data.seq_len = {} or {}",
        length, context, runs, context, std::max(runs, length / runs * runs), (length / runs + 1) * runs));
  if (config.device.cuda_graphs)
    mistakes.add("device.cuda_graphs: not available with mesh.context > 1: it has collectives within layers");
}

/// Requirements of expert parallelism on the mesh and other sections.
void check_expert(const RunConfig& config, std::int64_t shard, Mistakes& mistakes) {
  const Mesh& mesh = config.mesh;
  const bool own_blocks = mesh.expert > 1 || (config.model.experts > 0 && mesh.tensor > 1);
  if (own_blocks && config.sync.reshard_after_forward > 1)
    mistakes.add(fmt::format(
        "sync.reshard_after_forward: not available with {}: a group of ranks does not fit experts and all else; set "
        "true or false",
        mesh.expert > 1 ? "mesh.expert > 1" : "experts and mesh.tensor > 1"));
  if (mesh.expert == 1) return;
  if (config.device.cuda_graphs)
    mistakes.add(
        "device.cuda_graphs: not available with mesh.expert > 1: rows for experts differ from step to step; set false");
  const std::int64_t fold = shard * mesh.context * mesh.tensor;
  if (fold == 0 || fold % mesh.expert == 0) return;
  std::string axes = fmt::format("mesh.shard {}", shard);
  if (mesh.context > 1) axes += fmt::format(" x mesh.context {}", mesh.context);
  if (mesh.tensor > 1) axes += fmt::format(" x mesh.tensor {}", mesh.tensor);
  mistakes.add(fmt::format("mesh.expert: {} does not divide the {} ranks of {}; set {}", mesh.expert, fold, axes,
                           nearest_divisors(fold, mesh.expert)));
}

/// Requirements of a pipeline on other sections.
void check_pipeline(const RunConfig& config, Mistakes& mistakes) {
  const Pipeline& pipeline = config.pipeline;
  if (config.mesh.pipeline == 1) {
    if (!pipeline.layers.empty() || pipeline.chunks)
      mistakes.add(fmt::format("pipeline.{}: requires mesh.pipeline > 1; remove the key, or set mesh.pipeline",
                               pipeline.chunks ? "chunks" : "layers"));
    return;
  }
  if (config.memory.activation_offload)
    mistakes.add(
        "memory.activation_offload: not available with mesh.pipeline > 1: the activations of several microbatches wait "
        "at once; use memory.recompute");
  if (config.device.cuda_graphs)
    mistakes.add(
        "device.cuda_graphs: not available with mesh.pipeline > 1: transfers between pipeline ranks are not captured");
}

}  // namespace

Resolved resolve(const RunConfig& config, int ranks) {
  invariant(ranks > 0, "a job has at least one rank");
  Mistakes mistakes;
  const std::int64_t shard = fit_shard(config.mesh, ranks, mistakes);
  std::int64_t accumulation = 0;
  if (shard > 0) accumulation = fit_batch(config.batch, config.mesh.replicate * shard, mistakes);
  check_length(config, accumulation, config.mesh.replicate * shard, mistakes);
  const std::int64_t group = config.sync.reshard_after_forward;
  const std::int64_t shards = shard * config.mesh.context;
  if (shards > 0 && group > 1 && shards % group != 0)
    mistakes.add(fmt::format(
        "sync.reshard_after_forward: a group of {} does not divide the {} shards{}; set true, false or a divisor",
        group, shards,
        config.mesh.context > 1 ? fmt::format(" (mesh.shard {} x mesh.context {})", shard, config.mesh.context) : ""));
  check_tensor(config, mistakes);
  check_context(config, mistakes);
  check_expert(config, shard, mistakes);
  check_pipeline(config, mistakes);
  mistakes.raise(fmt::format("the run file does not fit {} {}:", ranks, ranks == 1 ? "rank" : "ranks"));
  Resolved resolved;
  for (const MeshKey& key : mesh_keys) resolved.*mesh::row_of(key.axis).size = static_cast<int>(config.mesh.*key.size);
  resolved.shard = static_cast<int>(shard);
  resolved.expert = static_cast<int>(config.mesh.expert);
  resolved.accumulation = static_cast<int>(accumulation);
  return resolved;
}

void require_trainable(const RunConfig& config) {
  Mistakes mistakes;
  if (config.model.experts > 0 && config.mesh.tensor > 1 && !config.mesh.sequence_parallel.value_or(true))
    mistakes.add(
        "mesh.sequence_parallel: false with mesh.tensor > 1 sends every token to its experts once for each tensor "
        "rank; set true");
  mistakes.raise("the run cannot be trained:");
}

}  // namespace trireme::config
