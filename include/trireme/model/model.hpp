// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/ids.hpp"
#include "trireme/config/run_config.hpp"

/// Architectures as data: compute blocks of stages, and the parameter blocks they read. Nothing here computes.
namespace trireme::model {

/// How a parameter is first filled. Every value depends on (seed, name, element) only.
enum class Filling { ones, normal };

struct Parameter {
  std::string name;                 ///< Hugging Face name, such as model.layers.0.self_attn.q_proj.weight
  std::vector<std::int64_t> shape;  ///< full shape, row-major
  Filling filling = Filling::normal;
  double std = 0.02;  ///< standard deviation where filling is normal

  [[nodiscard]] std::int64_t elements() const;
};

/// The unit of sharding: parameters laid end to end in one flat buffer.
struct ParameterBlock {
  std::string name;  ///< "embedding", "b0", ..., "head"
  std::vector<Parameter> parameters;
  /// False where backward needs no parameter values (an untied embedding reads indices only).
  bool backward_reads = true;
};

/// Where one parameter of a stage lives: parameter `index` of parameter block `block`.
struct ParamRef {
  ParamBlock block;
  int index = 0;
  friend bool operator==(const ParamRef&, const ParamRef&) = default;
};

/// The kinds of stage that `nn/` can run.
enum class StageKind { embedding, attention, mlp, head };

/// A local piece of a block's forward: reads the residual stream, writes it, saves what backward needs.
struct Stage {
  std::string name;  ///< "attention", "mlp", ...
  StageKind kind;
  std::vector<ParamRef> parameters;  ///< in the order the kind documents
};

/// The unit of scheduling.
struct ComputeBlock {
  std::string name;  ///< "embedding", "b0", ..., "head"
  std::vector<Stage> stages;
  std::vector<ParamBlock> reads;  ///< parameter blocks its stages read, each once
};

/// Sizes of a Llama-class model, completed (no zeros left).
struct Sizes {
  std::int64_t vocab = 0, hidden = 0, intermediate = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  double norm_eps = 1e-5;
  double rope_theta = 10000;
  std::optional<config::RopeScaling> rope_scaling;
  bool tied = false;
  friend bool operator==(const Sizes&, const Sizes&) = default;
};

struct Model {
  std::string architecture;
  Sizes sizes;
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

  /// All parameter elements, without padding.
  [[nodiscard]] std::int64_t elements() const;
  /// Where the parameter named `name` lives; nothing if there is none.
  [[nodiscard]] std::optional<ParamRef> find(std::string_view name) const;
};

/// Builds the architecture that the run file names. Throws ConfigError for an unknown one, listing those there are.
[[nodiscard]] Model build(const config::Model& config);

/// Llama (Touvron et al. 2023) as Hugging Face defines it: embedding, `layers` blocks of attention and mlp stages,
/// final norm + head. Parameter order in a block: input_layernorm, q, k, v, o, post_attention_layernorm, gate, up,
/// down. Stage parameters: embedding {embed_tokens}; attention {input_layernorm, q, k, v, o}; mlp
/// {post_attention_layernorm, gate, up, down}; head {norm, lm_head} (tied: {norm, embed_tokens}). init = depth_scaled
/// divides the std of o and down by sqrt(2 * layers).
[[nodiscard]] Model build_llama(const config::Model& config);

/// Forward + backward FLOPs of one token at sequence length `seq_len`: 6 per parameter that is in a matrix product (the
/// embedding lookup excluded, the head included) plus 12 * layers * heads * head_dim * seq_len for attention, counted
/// in full (PaLM, Chowdhery et al. 2022, appendix B). `flop_rule()` names it in the metrics.
[[nodiscard]] double flops_per_token(const Model& model, std::int64_t seq_len);
[[nodiscard]] std::string_view flop_rule();

}  // namespace trireme::model
