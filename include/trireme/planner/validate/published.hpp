// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/planner/time/costs.hpp"

/// Measured runs of other trainers, and the planner's predictions for them.
namespace trireme::planner {

enum class Sharding { zero0, zero1, zero2, full };
enum class Family { fsdp, zero0, zero1, tensor, pipeline };
[[nodiscard]] std::string_view to_text(Family family);

/// Part of the forward pass that is recomputed.
enum class ComputedAgain { nothing, blocks, operations, attention };

/// One measured run.
struct PublishedRow {
  int line = 0;
  std::string source, framework, model, gpu, note, recompute;
  ComputedAgain again = ComputedAgain::nothing;
  int again_every = 1;  ///< blocks: every n-th
  double ranks = 0, seq_len = 0, micro = 0, accumulation = 1;
  double dp = 1, tensor = 1, pipeline = 1, chunks = 1, replicas = 1;  ///< chunks: model chunks of a pipeline rank
  Sharding sharding = Sharding::zero0;
  double layers = 0, hidden = 0, intermediate = 0, heads = 0, kv_heads = 0, vocab = 0;
  bool tied = false, gated = true;
  std::optional<double> gpus_per_node, power_limit;
  bool calibrates = false;
  double tokens_per_second_per_gpu = 0;
  std::optional<double> memory;  ///< bytes
  std::string left_out;          ///< why it cannot be predicted; empty: it can
  [[nodiscard]] Family family() const;
  /// Whether a compiler (a note with "compile") or the trainer fuses kernels, unlike eager PyTorch.
  [[nodiscard]] bool fused_kernels() const;
  [[nodiscard]] double tokens() const { return micro * seq_len; }
};

/// Reads measured rows. Throws ConfigError with line and column.
[[nodiscard]] std::vector<PublishedRow> read_published(std::string_view text, const std::string& name);

/// Effects of a trainer's software on its time, apart from the machine. One per framework, never per row.
struct Trainer {
  Software software{};
  double latency = 0;        ///< seconds a collective between ranks, with the host's synchronisation; 0: the link's
  double layer_seconds = 0;  ///< host time of a layer, TP > 1; 0: the machine's
  double stage_layer_seconds = 0;  ///< added for each tensor rank in a pipeline
  double p2p_seconds = 0;          ///< per slot and direction
  double step_seconds = 0;         ///< per step; 0: the machine's
  double calls_per_layer = 1;      ///< collectives that a layer's parameters are reduced in
  double tensor_hidden = 0;        ///< fraction of the tensor axis' communication that overlaps with compute
};
[[nodiscard]] Trainer trainer_of(const PublishedRow& row);

/// Seconds of the row's step by closed formulas: ZeRO-0 and ZeRO-1, tensor and pipeline parallelism as those trainers
/// run them.
[[nodiscard]] double published_step(const PublishedRow& row, const Machine& machine, const Trainer& trainer);
/// Seconds of the row's step as a schedule of Trireme's, simulated: full sharding, with or without tensor parallelism.
[[nodiscard]] double simulated_step(const PublishedRow& row, const Machine& machine, const Trainer& trainer);
/// Bytes of the row's fullest rank, from a list of tensors that trainers keep.
[[nodiscard]] double published_memory(const PublishedRow& row);

/// The machine a row ran on: of those whose words its `gpu` column holds the one with most; nothing if none.
[[nodiscard]] std::optional<Machine> machine_of(const PublishedRow& row);

}  // namespace trireme::planner
