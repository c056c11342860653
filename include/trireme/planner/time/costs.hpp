// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/config/load.hpp"
#include "trireme/planner/replay.hpp"
#include "trireme/planner/time/machine.hpp"

/// Seconds of each op of a schedule on a machine.
namespace trireme::planner {

/// Part of a link that an op occupies: ops on one wire share its bandwidth.
enum class Wire : std::uint8_t { none, inside, between };

/// Ranks that call a collective together, and where they sit.
struct Group {
  int ranks = 1;
  int per_node = 1;  ///< on the same node
  int sharing = 1;   ///< such groups that use one node's adapters at the same time
  [[nodiscard]] bool crosses_nodes() const { return ranks > per_node; }
  [[nodiscard]] Wire wire() const { return ranks == 1 ? Wire::none : crosses_nodes() ? Wire::between : Wire::inside; }
};
/// The group of `ranks` ranks at distance `stride` from each other, on nodes of `gpus_per_node` ranks.
[[nodiscard]] Group group_of(int ranks, int stride, int gpus_per_node);

/// latency + rank_latency (n - 1) + bytes (n - 1) / n / bandwidth; between nodes the bandwidth is a node's share.
[[nodiscard]] double ring_seconds(const Machine& machine, const Group& group, double bytes);
/// The same data by an all-to-all: every rank of a node sends to every rank elsewhere, so that the adapters carry
/// `per_node` times the bytes of a ring. Used for Trireme's reduce-scatter on CPUs and with a bf16 wire.
[[nodiscard]] double all_to_all_seconds(const Machine& machine, const Group& group, double bytes);

/// Bytes that kernels move per token and width, forward and backward; 40% of them forward. Counted in our kernels, for
/// 2-byte elements.
struct Kernels {
  double norm = 13;         ///< x hidden, for a norm with its residual: two a layer
  double projections = 36;  ///< x heads * head_dim: layout of q, k and v, and RoPE
  double activation = 18;   ///< x intermediate
  double logit = 16;        ///< x vocabulary
  double accumulate = 10;   ///< x parameters and microbatch: the gradient's sum in fp32
  double update = 30;       ///< x parameters of the shard
};

/// Properties of a trainer, independent of the machine.
struct Software {
  Kernels kernels{};
  bool ring_reduce_scatter = false;  ///< for any precision.reduce and device.type
  bool updates_beside = true;        ///< on a GPU updates run concurrently with the next forward
};

/// A part of an op's time with its formula and the numbers in it.
struct Term {
  std::string name;
  std::string formula;
  double seconds = 0;
};

/// Cost of an op that runs alone.
struct Cost {
  double seconds = 0;
  double bytes = 0;  ///< that this rank sends, or copies to or from the host
  Wire wire = Wire::none;
  double host = 0;  ///< part of the rank's share of its node's host memory bandwidth that it takes
};

/// The achieved FLOP/s of one product of `flops` FLOPs.
[[nodiscard]] double product_rate(const Machine& machine, double flops, DType type);
/// The head size at which attention runs at half of the rate that it has at large ones.
inline constexpr double attention_half = 16;
/// The achieved FLOP/s of attention at a head size, causal half counted.
[[nodiscard]] double attention_rate(const Machine& machine, std::int64_t head_dim, DType type);

/// Seconds of each rank of a fold for the Newton-Schulz iterations of its matrices, in products of their sizes.
[[nodiscard]] std::vector<double> newton_schulz_seconds(const Machine& machine,
                                                        std::span<const optimizer::Matrix> matrices, int ranks,
                                                        DType type);

/// Costs of the ops of one rank. Holds references to all arguments except `machine` and `software`.
class Costs {
 public:
  struct Of {
    const model::Model& model;
    const shard::Layout& layout;
    const ReplayOptions& replay_options;
    config::Resolved mesh;
    std::int64_t seq_len = 0;
    bool graphs = false;  ///< CUDA graphs: launching costs the host nothing
  };
  Costs(Of of, Machine machine, Software software) : of_(of), machine_(std::move(machine)), software_(software) {}

  /// Costs of every op, in order; with `terms`, each op's terms too.
  [[nodiscard]] std::vector<Cost> of(const schedule::Schedule& schedule,
                                     std::vector<std::vector<Term>>* terms = nullptr) const;
  [[nodiscard]] const Machine& machine() const { return machine_; }

 private:
  Of of_;
  Machine machine_;
  Software software_;
};

}  // namespace trireme::planner
