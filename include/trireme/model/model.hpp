// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/ids.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/model/partition.hpp"

/// Architectures as data: compute blocks of stages, and the parameter blocks they read. Nothing here computes.
namespace trireme::model {

/// How a parameter is first filled. Every value depends on (seed, name, element) only.
enum class Filling { ones, zeros, normal };

struct Parameter {
  std::string name;                 ///< Hugging Face name, such as model.layers.0.self_attn.q_proj.weight
  std::vector<std::int64_t> shape;  ///< row-major: full, or what a tensor rank holds (see tensor.hpp)
  Filling filling = Filling::normal;
  double std = 0.02;  ///< standard deviation where filling is normal
  /// Hugging Face files hold the transpose (GPT-2's Conv1D): [in, out] there, [out, in] here.
  bool transposed_in_files = false;
  std::optional<Partition> partition{};  ///< absent: held as a whole

  /// Elements that are held, padding of a cut vocabulary included.
  [[nodiscard]] std::int64_t elements() const;
  /// The shape in files and checkpoints, whatever part is held.
  [[nodiscard]] std::vector<std::int64_t> full_shape() const;
  [[nodiscard]] std::int64_t full_elements() const;
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

/// The kinds of stage that `nn/` can run. The first five read the residual stream and write it; the others are what
/// tensor parallelism cuts them into (tensor.hpp).
enum class StageKind {
  embedding,         ///< {tokens}
  positions,         ///< {positions}: learned ones
  attention,         ///< {norm..., q, k, v or q|k|v, o}, with `biases` each followed by its bias
  mlp,               ///< {norm..., gate, up, down} or {norm..., up, down}, with `biases` each followed by its bias
  head,              ///< {norm..., projection}
  norm,              ///< {norm...}: of attention, mlp or head
  attention_branch,  ///< attention without its norm and residual
  mlp_branch,        ///< mlp without its norm and residual
  logits,            ///< {projection}: the head without its norm
};

/// A collective over the tensor axis that stands before or after a stage. Its backward is the other one of gather and
/// scatter, in reverse; an all-reduce before a stage is in its backward only, one after it in its forward only.
enum class Join { none, gather_sequence, scatter_sequence, all_reduce_activation, gather_vocabulary };

/// A local piece of a block's forward: reads the residual stream, writes it, saves what backward needs.
struct Stage {
  std::string name;  ///< "attention", "mlp", ...
  StageKind kind;
  std::vector<ParamRef> parameters;  ///< in the order the kind documents
  Join enter = Join::none;           ///< before its forward
  Join leave = Join::none;           ///< after its forward
};

/// The unit of scheduling.
struct ComputeBlock {
  std::string name;  ///< "embedding", "b0", ..., "head"
  std::vector<Stage> stages;
  std::vector<ParamBlock> reads;  ///< parameter blocks its stages read, each once
};

enum class Norm { rms, layer };
enum class Activation { swiglu, gelu_tanh };

/// What the stages of an architecture are made of.
struct Form {
  Norm norm = Norm::rms;  ///< parameters: {weight}, or {weight, bias}
  Activation activation = Activation::swiglu;
  bool rotary = true;      ///< rotary positions; else the embedding adds learned ones
  bool biases = false;     ///< every linear layer but the head has one
  bool joint_qkv = false;  ///< q, k and v are one parameter [3 * heads * head_dim, hidden]
  friend bool operator==(const Form&, const Form&) = default;
};

/// Sizes of a model, completed (no zeros left but for `positions` of rotary models).
struct Sizes {
  std::int64_t vocab = 0, hidden = 0, intermediate = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t positions = 0;  ///< learned ones: the longest sequence
  double norm_eps = 1e-5;
  double rope_theta = 10000;
  std::optional<config::RopeScaling> rope_scaling;
  bool tied = false;
  Form form{};
  friend bool operator==(const Sizes&, const Sizes&) = default;
};

struct Model {
  std::string architecture;
  Sizes sizes;      ///< of the whole model
  Sizes held;       ///< of what one tensor rank holds: heads, kv_heads, intermediate and vocab are its part
  TensorPart part;  ///< whose part this is
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
  /// Where the parameter named `name` lives; nothing if there is none.
  [[nodiscard]] std::optional<ParamRef> find(std::string_view name) const;
};

/// Builds the architecture that the run file names. Throws ConfigError for an unknown one, listing those there are.
[[nodiscard]] Model build(const config::Model& config);

/// What one tensor rank holds and runs of the model: its architecture's tensor plan applied. A part of 1 is the whole
/// model. Throws ConfigError naming all sizes that do not divide, with the nearest that do.
[[nodiscard]] Model build(const config::Model& config, const TensorPart& part);

/// Llama (Touvron et al. 2023) as Hugging Face defines it: embedding, `layers` blocks of attention and mlp stages,
/// final norm + head. Parameter order in a block: input_layernorm, q, k, v, o, post_attention_layernorm, gate, up,
/// down. Stage parameters: embedding {embed_tokens}; attention {input_layernorm, q, k, v, o}; mlp
/// {post_attention_layernorm, gate, up, down}; head {norm, lm_head} (tied: {norm, embed_tokens}). init = depth_scaled
/// divides the std of o and down by sqrt(2 * layers).
[[nodiscard]] Model build_llama(const config::Model& config);

/// GPT-2 (Radford et al. 2019) as Hugging Face defines it: token and position embeddings, `layers` blocks with
/// LayerNorm, biases and the tanh form of GELU, final norm + head. Parameter order in a block: ln_1, c_attn,
/// attn.c_proj, ln_2, c_fc, mlp.c_proj, weight before bias. The learned positions are a parameter block of their own.
[[nodiscard]] Model build_gpt2(const config::Model& config);

/// Whether a stage looks rows of its parameters up by number: its backward reads no values.
[[nodiscard]] constexpr bool looks_up(StageKind kind) {
  return kind == StageKind::embedding || kind == StageKind::positions;
}

/// Whether tensor parallelism cut a stage: a value of its own stands between it and the residual stream.
[[nodiscard]] constexpr bool is_branch(StageKind kind) {
  return kind == StageKind::attention_branch || kind == StageKind::mlp_branch;
}
[[nodiscard]] inline bool is_partitioned(const Stage& stage) {
  return stage.kind == StageKind::norm || stage.leave != Join::none || stage.enter != Join::none;
}

/// Whether ranks of the tensor axis hold the same parameters of a block and have seen other tokens or heads.
[[nodiscard]] bool has_replicated_gradients(const ParameterBlock& block);

/// Elements of a block's parameters that matrix products multiply by: not those of norms, nor what is looked up by
/// index.
[[nodiscard]] std::int64_t product_elements(const Model& model, Block block);

/// Forward + backward FLOPs of one token at sequence length `seq_len`: 6 per parameter that is in a matrix product (the
/// embedding lookup excluded, the head included) plus 12 * layers * heads * head_dim * seq_len for attention, counted
/// in full (PaLM, Chowdhery et al. 2022, appendix B). `flop_rule()` names it in the metrics.
[[nodiscard]] double flops_per_token(const Model& model, std::int64_t seq_len);
[[nodiscard]] std::string_view flop_rule();

}  // namespace trireme::model
