// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

/// A decoder block as data: what the stages of a model are made of, and which parameters each stage has.
namespace trireme::model {

/// The kinds of stage that `nn/` can run. The first five read the residual stream and write it; the others are what
/// tensor parallelism cuts them into (tensor_plan.hpp). `roles_of` gives the parameters of each.
enum class StageKind {
  embedding,
  positions,         ///< adds learned ones
  attention,         ///< x + o(attention(q, k, v of norm(x)))
  mlp,               ///< x + down(activation(up of norm(x)))
  head,              ///< final norm, logits and loss
  norm,              ///< of attention, mlp or head
  attention_branch,  ///< attention without its norm and residual
  mlp_branch,        ///< mlp without its norm and residual
  logits,            ///< the head without its norm
};

enum class NormKind : std::uint8_t { rms, layer };
/// Normalization of queries and keys before RoPE. head: each head by itself, one weight for all; width: all heads of a
/// token together.
enum class QkNorm : std::uint8_t { none, head, width };
enum class Activation : std::uint8_t { swiglu, gelu_tanh };  ///< the last has no gate

/// What the stages of a model are made of. Equal on every rank.
struct Decoder {
  NormKind norm = NormKind::rms;  ///< layer: with a bias
  Activation activation = Activation::swiglu;
  /// Where a branch is normed: its input, and its output before it is added to the residual stream.
  bool pre_norm = true, post_norm = false;
  QkNorm qk_norm = QkNorm::none;
  bool learned_positions = false;                           ///< added to the embedding; else RoPE
  bool joint_qkv = false;                                   ///< q, k and v are one parameter, and so are their biases
  bool qkv_bias = false, o_bias = false, mlp_bias = false;  ///< mlp_bias: of every linear layer of the MLP
  friend bool operator==(const Decoder&, const Decoder&) = default;

  [[nodiscard]] bool gated() const { return activation != Activation::gelu_tanh; }
};

/// What a parameter is in its stage: its shape, its split over tensor ranks and its name in files follow from it.
enum class Role : std::uint8_t {
  embedding,
  positions,
  attention_norm,
  attention_norm_bias,
  q,
  k,
  v,
  qkv,
  q_bias,
  k_bias,
  v_bias,
  qkv_bias,
  q_norm,
  k_norm,
  o,
  o_bias,
  attention_post_norm,
  mlp_norm,
  mlp_norm_bias,
  gate,
  up,
  gate_bias,
  up_bias,
  down,
  down_bias,
  mlp_post_norm,
  final_norm,
  final_norm_bias,
  head,  ///< with tied embeddings a stage's parameter of this role is the embedding
};

/// The parameters of a stage of `kind`, in the order in which the stage lists them: those of the norm of its input
/// come first, those of the norm of its output last. norm:
/// of StageKind::norm none, since it is that of another stage.
[[nodiscard]] std::vector<Role> roles_of(StageKind kind, const Decoder& decoder);

/// How many parameters a norm has.
[[nodiscard]] constexpr std::size_t norm_parameters(const Decoder& decoder) {
  return decoder.norm == NormKind::layer ? 2 : 1;
}

}  // namespace trireme::model
