// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/chunks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "trireme/base/error.hpp"
#include "trireme/model/activations.hpp"
#include "trireme/model/architecture.hpp"

namespace trireme::model {
namespace {

/// The blocks that are layers: [first, last).
Chunk layers_of(const Model& model) {
  Chunk found{Block{model.blocks()}, Block{0}};
  for (int b = 0; b < model.blocks(); ++b)
    if (recomputes(model[Block{b}])) {
      found.first = std::min(found.first, Block{b});
      found.last = Block{b + 1};
    }
  return found;
}

/// Chunks that end at these blocks.
std::vector<Chunk> chunks_until(const std::vector<int>& ends) {
  std::vector<Chunk> out;
  for (std::size_t i = 0; i < ends.size(); ++i) out.push_back({Block{i == 0 ? 0 : ends[i - 1]}, Block{ends[i]}});
  return out;
}

}  // namespace

double block_flops(const Model& model, Block block, std::int64_t seq_len) {
  const double products = 6.0 * static_cast<double>(product_elements(model, block));
  if (!recomputes(model[block])) return products;
  const std::int64_t window = window_of(model.config, block.value - layers_of(model).first.value);
  const std::int64_t keys = window > 0 ? std::min(window, seq_len) : seq_len;
  const Sizes& sizes = model.sizes;
  return products + 6.0 * static_cast<double>(sizes.heads * (sizes.head_dim + sizes.value_dim()) * keys);
}

std::vector<Chunk> cut_by_flops(const Model& model, int count, std::int64_t seq_len) {
  const Chunk layers = layers_of(model);
  const int layer_count = layers.last.value - layers.first.value;
  if (count > layer_count)
    throw ConfigError(
        fmt::format("a pipeline of {} chunks for {} layers: every chunk needs one; set mesh.pipeline x "
                    "pipeline.chunks to at most {}",
                    count, layer_count, layer_count));
  const int blocks = model.blocks();
  std::vector<double> before{0};  // FLOPs of the blocks before each
  for (int b = 0; b < blocks; ++b) before.push_back(before.back() + block_flops(model, Block{b}, seq_len));
  const auto flops = [&](int first, int last) {
    return before[static_cast<std::size_t>(last)] - before[static_cast<std::size_t>(first)];
  };
  // best[k][b]: the largest chunk of blocks b.. in k + 1 chunks at best.
  constexpr double never = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(static_cast<std::size_t>(count),
                                        std::vector<double>(static_cast<std::size_t>(blocks) + 1, never));
  for (int b = 0; b < layers.last.value; ++b) best[0][static_cast<std::size_t>(b)] = flops(b, blocks);
  const auto first_cut = [&](int b) { return std::max(b, layers.first.value) + 1; };
  const auto with_cut = [&](int more, int b, int cut) {
    return std::max(flops(b, cut), best[static_cast<std::size_t>(more) - 1][static_cast<std::size_t>(cut)]);
  };
  for (int more = 1; more < count; ++more)
    for (int b = 0; b < layers.last.value; ++b)
      for (int cut = first_cut(b); cut < layers.last.value; ++cut) {
        double& least = best[static_cast<std::size_t>(more)][static_cast<std::size_t>(b)];
        least = std::min(least, with_cut(more, b, cut));
      }
  const double least = best.back().front() * (1 + 1e-12);
  std::vector<int> ends;
  for (int more = count - 1, b = 0; more > 0; --more) {
    int cut = first_cut(b);
    while (with_cut(more, b, cut) > least) ++cut;
    ends.push_back(b = cut);
  }
  ends.push_back(blocks);
  return chunks_until(ends);
}

std::vector<Chunk> cut_by_layers(const Model& model, std::span<const std::int64_t> layers) {
  const Chunk all = layers_of(model);
  const std::int64_t sum = std::accumulate(layers.begin(), layers.end(), std::int64_t{0});
  if (std::any_of(layers.begin(), layers.end(), [](std::int64_t n) { return n < 1; }) ||
      sum != all.last.value - all.first.value)
    throw ConfigError(
        fmt::format("pipeline.layers: {} layers in {} chunks, of a model of {}: every chunk needs a layer, "
                    "and they must sum to model.layers",
                    sum, layers.size(), all.last.value - all.first.value));
  std::vector<int> ends;
  int end = all.first.value;
  for (const std::int64_t count : layers) ends.push_back(end += static_cast<int>(count));
  ends.back() = model.blocks();
  return chunks_until(ends);
}

PipelinePart take(const Model& whole, std::span<const Chunk> chunks, std::span<const int> held) {
  PipelinePart out{.model = whole, .chunks = {}, .all_chunks = static_cast<int>(chunks.size())};
  out.model.compute_blocks.clear();
  out.model.parameter_blocks.clear();
  std::vector<bool> here(static_cast<std::size_t>(whole.blocks()), false);
  for (const int chunk : held) {
    const Chunk& of = chunks[static_cast<std::size_t>(chunk)];
    HeldChunk part{.chunk = chunk, .first = Block{out.model.blocks()}, .last = {}};
    for (Block b = of.first; b < of.last; ++b.value) {
      here[static_cast<std::size_t>(b.value)] = true;
      out.model.compute_blocks.push_back(whole[b]);
    }
    part.last = Block{out.model.blocks()};
    out.chunks.push_back(part);
  }
  std::vector<std::optional<ParamBlock>> where;  // of the whole model's parameter blocks
  for (int p = 0; p < whole.param_blocks(); ++p) {
    bool read_here = false, read_elsewhere = false;
    for (int b = 0; b < whole.blocks(); ++b) {
      const auto& reads = whole[Block{b}].reads;
      if (std::find(reads.begin(), reads.end(), ParamBlock{p}) == reads.end()) continue;
      (here[static_cast<std::size_t>(b)] ? read_here : read_elsewhere) = true;
    }
    where.push_back(read_here ? std::optional(ParamBlock{out.model.param_blocks()}) : std::nullopt);
    if (!read_here) continue;
    out.model.parameter_blocks.push_back(whole[ParamBlock{p}]);
    out.model.parameter_blocks.back().on_two_pipeline_ranks = read_elsewhere;
  }
  const auto moved = [&](ParamBlock block) { return *where[static_cast<std::size_t>(block.value)]; };
  for (ComputeBlock& block : out.model.compute_blocks) {
    for (ParamBlock& read : block.reads) read = moved(read);
    for (Stage& stage : block.stages)
      for (ParamRef& ref : stage.parameters) ref.block = moved(ref.block);
  }
  return out;
}

}  // namespace trireme::model
