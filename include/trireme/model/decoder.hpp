// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

/// A decoder block as data: the stages of a model, and the parameters of each stage.
namespace trireme::model {

/// The kinds of stage that `nn/` can run. The first five and moe read the residual stream and write it; the others are
/// parts of them under tensor parallelism (tensor_plan.hpp), context parallelism (context.hpp) and expert parallelism
/// (experts.hpp). `roles_of` returns the parameters of each.
enum class StageKind {
  embedding,
  positions,         ///< adds learned ones
  attention,         ///< x + o(attention(q, k, v of norm(x)))
  mlp,               ///< x + down(activation(up of norm(x)))
  head,              ///< final norm, logits and loss
  norm,              ///< of attention, mlp or head
  input,             ///< replaces norm before a branch that reads the residual stream itself
  attention_branch,  ///< attention without its norm and residual
  mlp_branch,        ///< mlp without its norm and residual
  projection,        ///< attention_branch up to queries, keys and values, normed and turned
  qk_norm,           ///< of projection the norm over all heads, and RoPE: a separate stage in decoders that have it
  attend,            ///< the rest of it: attention over the keys of whole sequences, and its output
  core_attention,    ///< attention of some heads over whole sequences: attend without its output
  output,            ///< the output of attention
  post_norm,         ///< of the output of attention or mlp, and its residual
  logits,            ///< the head without its norm
  moe,               ///< x + shared experts of norm(x) + the weighted sum of a token's experts of norm(x)
  route,             ///< moe up to the rows that go to the experts, sorted by them (expert parallelism)
  experts,           ///< this rank's experts of the rows of all ranks
  merge,             ///< the experts' outputs of a token's rows, summed and added to x
};

/// rms_plus_one: RMSNorm times (1 + weight), whose weight starts at 0.
enum class NormKind : std::uint8_t { rms, rms_plus_one, layer };
/// Normalization of queries and keys before RoPE. head: each head separately, one weight for all; width: all heads of a
/// token together.
enum class QkNorm : std::uint8_t { none, head, width };
enum class Activation : std::uint8_t { swiglu, geglu_tanh, gelu_tanh };  ///< the last has no gate

/// Scores that a router computes from its logits, of which the best are chosen: a softmax over all experts (Shazeer et
/// al. 2017), or the sigmoid of each (DeepSeek-V3 2024).
enum class RouterScores : std::uint8_t { softmax, sigmoid };
/// SwiGLU networks of every token in addition to its chosen experts. gated: times the sigmoid of a product of the token
/// (Qwen2-MoE); else unweighted (DeepSeek-V2).
enum class SharedExperts : std::uint8_t { none, plain, gated };

/// The experts of a layer: SwiGLU networks of which a router chooses some for each token.
struct Experts {
  std::int64_t count = 0, per_token = 0;
  std::int64_t size = 0;          ///< the width of one
  std::int64_t dense_layers = 0;  ///< first layers that have an MLP instead
  bool normalized = true;         ///< the weights of a token's experts are divided by their sum
  RouterScores scores = RouterScores::softmax;
  /// The scores have a bias each, for choosing only (Wang et al. 2024): fp32, without a gradient.
  bool choice_bias = false;
  /// A group of neighbours is as good as its two best experts together; a token chooses among those of its best groups.
  std::int64_t groups = 1, groups_kept = 1;
  double scale = 1;  ///< of the weights of a token's experts
  SharedExperts shared = SharedExperts::none;
  std::int64_t shared_size = 0;  ///< the width of all shared experts together

  friend bool operator==(const Experts&, const Experts&) = default;
};

/// Multi-head latent attention (DeepSeek-V2 2024): keys and values of all heads are products of one normed latent of a
/// token, queries those of another one or of the branch's input. A head of queries and keys has elements without RoPE,
/// then elements with it; the latter are one key for all heads.
struct Latent {
  std::int64_t q_rank = 0, kv_rank = 0;  ///< widths of the latents; q_rank 0: queries have none
  std::int64_t nope = 0, rope = 0;       ///< elements of a head of queries and keys, without and with RoPE
  std::int64_t value = 0;                ///< elements of a head of values

  [[nodiscard]] std::int64_t head_dim() const { return nope + rope; }
  /// Columns of the products that compute the latents and the key with RoPE.
  [[nodiscard]] std::int64_t compressed() const { return q_rank + kv_rank + rope; }
  /// Columns of a head of the product that expands keys and values.
  [[nodiscard]] std::int64_t expanded() const { return nope + value; }
  friend bool operator==(const Latent&, const Latent&) = default;
};
/// Epsilon of the norms of both latents.
inline constexpr double latent_norm_eps = 1e-6;

/// Options of the stages of a model. Equal on every rank.
struct Decoder {
  NormKind norm = NormKind::rms;  ///< layer: with a bias
  Activation activation = Activation::swiglu;
  /// Norms of a branch: of its input, and of its output before it is added to the residual stream.
  bool pre_norm = true, post_norm = false;
  QkNorm qk_norm = QkNorm::none;
  bool learned_positions = false;                           ///< added to the embedding; else RoPE
  bool joint_qkv = false;                                   ///< q, k and v are one parameter, and so are their biases
  bool qkv_bias = false, o_bias = false, mlp_bias = false;  ///< mlp_bias: of every linear layer of the MLP
  bool adjacent_pairs = false;  ///< RoPE rotates elements 2i and 2i + 1; else i and i + half of the rotated ones
  double rotary_part = 1;       ///< of a head, from its beginning
  bool local_rope = false;      ///< layers with a window have separate RoPE: another base, no scaling
  bool embedding_root = false;  ///< the embedding is times sqrt(hidden), rounded to the compute type
  double embedding_scale = 1, residual_scale = 1;  ///< of the embedding; of the branches' outputs
  double score_scale = 0;                          ///< of attention's scores; 0: head_dim^-1/2
  double score_softcap = 0, logit_softcap = 0;     ///< x becomes cap tanh(x / cap); 0: none
  double logit_divisor = 1;                        ///< of the logits, before their softcap
  std::optional<Experts> experts{};                ///< in place of the MLP
  std::optional<Latent> latent{};                  ///< in place of the products q, k and v
  friend bool operator==(const Decoder&, const Decoder&) = default;

  [[nodiscard]] bool gated() const { return activation != Activation::gelu_tanh; }
};

/// Role of a parameter in its stage: its shape, its split over tensor ranks and its name in files follow from it.
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
  q_a,  ///< of latent attention: the latent of queries, its norm, and the queries
  q_a_norm,
  q_b,
  kv_a,  ///< the latent of keys and values, then the key with RoPE; the latent's norm; keys and values by head
  kv_a_norm,
  kv_b,
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
  router,
  router_bias,    ///< the correction bias of the scores
  shared_weight,  ///< of gated shared experts: [1, hidden]
  shared_gate,
  shared_up,
  shared_down,
  expert_gate,
  expert_up,
  expert_down,
  final_norm,
  final_norm_bias,
  head,  ///< with tied embeddings a stage's parameter of this role is the embedding
};

/// The parameters of a stage of `kind`, in the stage's order: first those of the
/// norm of its input, last those of the norm of its output. None for StageKind::norm
/// and post_norm, since they belong to another stage; input has none.
[[nodiscard]] std::vector<Role> roles_of(StageKind kind, const Decoder& decoder);

/// Number of parameters of a norm.
[[nodiscard]] constexpr std::size_t norm_parameters(const Decoder& decoder) {
  return decoder.norm == NormKind::layer ? 2 : 1;
}

/// Elements of a head of `head_dim` that RoPE turns: the first ones, with latent attention the last ones.
[[nodiscard]] constexpr std::int64_t rotary_width(const Decoder& decoder, std::int64_t head_dim) {
  if (decoder.latent) return decoder.latent->rope;
  return static_cast<std::int64_t>(static_cast<double>(head_dim) * decoder.rotary_part);
}

}  // namespace trireme::model
