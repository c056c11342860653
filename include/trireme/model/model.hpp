// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/ids.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/model/decoder.hpp"
#include "trireme/model/exchange.hpp"
#include "trireme/model/fp8.hpp"
#include "trireme/model/partition.hpp"

/// Architectures as data: compute blocks of stages, and the parameter blocks they read. Nothing here computes.
namespace trireme::model {

/// Initialization of a parameter. Every value depends on (seed, name, element) only.
enum class Filling { ones, zeros, normal };

struct Parameter {
  std::string name;  ///< Hugging Face name, such as model.layers.0.self_attn.q_proj.weight
  Role role = Role::embedding;
  std::vector<std::int64_t> shape;  ///< row-major: full, or of a tensor rank's part (see tensor.hpp)
  Filling filling = Filling::normal;
  double std = 0.02;  ///< standard deviation where filling is normal
  /// Hugging Face files hold the transpose (GPT-2's Conv1D): [in, out] there, [out, in] here.
  bool transposed_in_files = false;
  /// Files hold its rows in a tensor of this name, after `rows_before` of `joint_rows`: those of several parameters
  /// that follow each other in their block. Empty: the tensor is its own.
  std::string joint_tensor{};
  std::int64_t rows_before = 0, joint_rows = 0;
  std::optional<Partition> partition{};  ///< absent: held as a whole

  /// Elements that are held, padding of a cut vocabulary included.
  [[nodiscard]] std::int64_t elements() const;
  /// The shape in files and checkpoints, independent of the part held.
  [[nodiscard]] std::vector<std::int64_t> full_shape() const;
  [[nodiscard]] std::int64_t full_elements() const;
};

/// The unit of sharding: parameters concatenated in one flat buffer.
struct ParameterBlock {
  std::string name;  ///< "embedding", "b0", ..., "head"
  std::vector<Parameter> parameters;
  /// False if backward needs no parameter values (an untied embedding reads indices only).
  bool backward_reads = true;
  /// Another pipeline rank holds the same block: a tied embedding, whose two gradients are summed.
  bool on_two_pipeline_ranks = false;
  /// The experts of a layer, if these are a separate block: every rank of the tensor axis has other elements.
  bool of_experts = false;
  /// Equal runs of its parameters, each gathered by other ranks: expert parallelism. A rank needs its own.
  int parts = 1;
};

/// Location of a stage's parameter: parameter `index` of parameter block `block`.
struct ParamRef {
  ParamBlock block;
  int index = 0;
  friend bool operator==(const ParamRef&, const ParamRef&) = default;
};

/// A local part of a block's forward: reads the residual stream, writes it, saves tensors for backward.
struct Stage {
  std::string name;  ///< "attention", "mlp", ...
  StageKind kind;
  std::vector<ParamRef> parameters;  ///< in the order of roles_of
  /// Exchanges before and after its forward; `schedule::exchanges_at` has those of its backward.
  std::optional<Exchange> enter{}, leave{};
  std::int64_t window = 0;     ///< of attention: keys that a query sees, its own included; 0: all before it
  bool rotates = true;         ///< of attention: its queries and keys have RoPE
  bool sum_is_normed = false;  ///< the sum of a branch is the input of the following post_norm, not added to the stream
  bool sums_loads = false;     ///< of a router: its backward reads loads of sequences that several ranks divide
  Fp8Products fp8{};
};

/// The unit of scheduling.
struct ComputeBlock {
  std::string name;  ///< "embedding", "b0", ..., "head"
  std::vector<Stage> stages;
  std::vector<ParamBlock> reads;  ///< parameter blocks its stages read, each once
  int layer = -1;                 ///< which one of the whole model it is; -1: none
};

/// Sizes of a model, completed (no zeros except for `positions` of rotary models).
struct Sizes {
  std::int64_t vocab = 0, hidden = 0, intermediate = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t positions = 0;  ///< learned ones: the longest sequence
  double norm_eps = 1e-5;
  double rope_theta = 10000;
  double rope_local_theta = 10000;  ///< with decoder.local_rope: of layers with a window
  std::optional<config::RopeScaling> rope_scaling;
  bool tied = false;
  Decoder decoder{};

  /// Elements of a head of values, and of attention's output. head_dim: of queries and keys.
  [[nodiscard]] std::int64_t value_dim() const { return decoder.latent ? decoder.latent->value : head_dim; }
  friend bool operator==(const Sizes&, const Sizes&) = default;
};

struct Model {
  std::string architecture;
  config::Model config;  ///< the configuration that it was built from, completed
  Sizes sizes;           ///< of the whole model
  Sizes held;            ///< sizes of one tensor rank: heads, kv_heads, intermediate and vocab are its part
  TensorPart part;       ///< whose part this is, and of which tokens
  std::vector<ParameterBlock> parameter_blocks;
  std::vector<ComputeBlock> compute_blocks;

  [[nodiscard]] const ParameterBlock& operator[](ParamBlock block) const {
    return parameter_blocks[static_cast<std::size_t>(block.value)];
  }
  [[nodiscard]] const ComputeBlock& operator[](Block block) const {
    return compute_blocks[static_cast<std::size_t>(block.value)];
  }
  [[nodiscard]] const Parameter& operator[](ParamRef ref) const {
    return (*this)[ref.block].parameters[static_cast<std::size_t>(ref.index)];
  }
  [[nodiscard]] int blocks() const { return static_cast<int>(compute_blocks.size()); }
  [[nodiscard]] int param_blocks() const { return static_cast<int>(parameter_blocks.size()); }

  /// All parameter elements of the whole model, without padding.
  [[nodiscard]] std::int64_t elements() const;
  /// Location of the parameter named `name`; nothing if there is none.
  [[nodiscard]] std::optional<ParamRef> find(std::string_view name) const;
};

/// Builds a decoder of the architecture that the run file names: embedding (learned positions are a parameter block of
/// their own), `layers` blocks of attention and mlp stages, final norm + head. init = depth_scaled divides the std of o
/// and down by sqrt(2 * layers). Throws ConfigError for an unknown architecture, listing those there are.
[[nodiscard]] Model build(const config::Model& config);

/// The part of one tensor rank: its architecture's tensor plan applied, then sequences divided,
/// then experts. A part of 1 is the whole model. Throws ConfigError naming all sizes that do not divide, with the
/// nearest that do.
[[nodiscard]] Model build(const config::Model& config, const TensorPart& part);

/// Whether a stage looks rows of its parameters up by number: its backward reads no values.
[[nodiscard]] constexpr bool looks_up(StageKind kind) {
  return kind == StageKind::embedding || kind == StageKind::positions;
}

/// Whether a stage reads the output of a norm, and its weights' gradients read it again.
[[nodiscard]] constexpr bool is_branch(StageKind kind) {
  return kind == StageKind::attention_branch || kind == StageKind::mlp_branch || kind == StageKind::projection;
}
/// Whether a stage computes the input of a branch from the residual stream: unchanged or normed.
[[nodiscard]] constexpr bool begins_branch(StageKind kind) {
  return kind == StageKind::norm || kind == StageKind::input;
}
/// Whether a stage follows the keys of attention, under context parallelism.
[[nodiscard]] constexpr bool attends(StageKind kind) {
  return kind == StageKind::attend || kind == StageKind::core_attention;
}
/// Whether a stage has the weights of attention's output, whose gradients need its saved tensors, not a norm's output.
[[nodiscard]] constexpr bool ends_attention(StageKind kind) {
  return kind == StageKind::attend || kind == StageKind::output;
}
/// Whether a stage is a part of a layer of experts under expert parallelism, with rows between the parts.
[[nodiscard]] constexpr bool is_of_experts(StageKind kind) {
  return kind == StageKind::route || kind == StageKind::experts || kind == StageKind::merge;
}
/// Whether a stage has parameters, whose gradients may be computed by themselves.
[[nodiscard]] constexpr bool has_weights(StageKind kind) {
  return kind != StageKind::core_attention && kind != StageKind::merge;
}
/// Whether parallelism partitions a stage: a separate tensor is then between it and the residual stream.
[[nodiscard]] inline bool is_partitioned(const Stage& stage) {
  return is_branch(stage.kind) || attends(stage.kind) || ends_attention(stage.kind) || begins_branch(stage.kind) ||
         stage.kind == StageKind::qk_norm || stage.kind == StageKind::post_norm || is_of_experts(stage.kind) ||
         stage.leave || stage.enter;
}

/// Whether a stage that ends attention adds its output to the residual stream, without a sum or norm in between.
[[nodiscard]] inline bool adds_to_stream(const Stage& stage) { return !stage.leave && !stage.sum_is_normed; }

/// Whether ranks of the tensor axis hold the same parameters of a block and have seen other tokens or heads.
[[nodiscard]] bool has_replicated_gradients(const ParameterBlock& block);

/// Whether every expert has a parameter of this role.
[[nodiscard]] constexpr bool is_expert(Role role) {
  return role == Role::expert_gate || role == Role::expert_up || role == Role::expert_down;
}

/// Whether experts are separate parameter blocks.
[[nodiscard]] bool divides_experts(const Model& model);
/// Whether a router's backward reads loads of sequences that several ranks divide.
[[nodiscard]] bool sums_loads(const Model& model);

/// Elements of a block's parameters that take part in matrix products for a token: not those of norms, nor of tables
/// indexed by ids; of its experts those of experts_per_token.
[[nodiscard]] std::int64_t product_elements(const Model& model, Block block);

/// Forward + backward FLOPs of one token at sequence length `seq_len`: 6 per parameter that is in a matrix product (the
/// embedding lookup and the experts that do not get the token excluded, the head included) plus 12 * layers * heads *
/// head_dim * seq_len for attention, counted in full (PaLM, Chowdhery et al. 2022, appendix B); layers with a window
/// count min(window, seq_len) instead of seq_len. `flop_rule()` names the rule in the metrics.
[[nodiscard]] double flops_per_token(const Model& model, std::int64_t seq_len);
[[nodiscard]] std::string_view flop_rule();

}  // namespace trireme::model
