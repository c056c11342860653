// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/model/model.hpp"

/// The model partitioned into chunks for pipeline parallelism, and one pipeline rank's part.
namespace trireme::model {

/// Consecutive compute blocks [first, last) of the whole model.
struct Chunk {
  Block first, last;
  friend bool operator==(const Chunk&, const Chunk&) = default;
};

/// Forward and backward FLOPs of one token in a block, as `flops_per_token` counts them: lookups cost nothing.
[[nodiscard]] double block_flops(const Model& model, Block block, std::int64_t seq_len);

/// `count` chunks whose largest has the fewest FLOPs; of the cuts that reach it, the earliest. Each has a layer; the
/// embedding is in the first, the head in the last. Throws ConfigError when there are fewer layers.
[[nodiscard]] std::vector<Chunk> cut_by_flops(const Model& model, int count, std::int64_t seq_len);

/// Chunks with the given numbers of layers. Throws ConfigError unless they sum to all layers and each has one.
[[nodiscard]] std::vector<Chunk> cut_by_layers(const Model& model, std::span<const std::int64_t> layers);

/// A chunk that a rank holds: its compute blocks [first, last) in the rank's model.
struct HeldChunk {
  int chunk = 0;
  Block first, last;
  friend bool operator==(const HeldChunk&, const HeldChunk&) = default;
};

/// Part of one pipeline rank: a model of its blocks only, with the names and sizes of the whole one.
struct PipelinePart {
  Model model;
  std::vector<HeldChunk> chunks;
  int all_chunks = 1;
};

/// The blocks of the chunks `held` (in the model's order) and the parameters they read. A parameter block that other
/// chunks read, too, is marked `on_two_pipeline_ranks`.
[[nodiscard]] PipelinePart take(const Model& whole, std::span<const Chunk> chunks, std::span<const int> held);

}  // namespace trireme::model
