// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trireme/model/decoder.hpp"

/// Mixtures of experts: the choice of a token's experts, and the rows of their inputs. N tokens, E experts, k experts
/// per token, R = N k rows.
namespace trireme::kernels {

/// Capacity of routers on GPUs.
constexpr std::int64_t most_experts_on_gpu = 1024;

/// The experts of each token: those with the largest scores, of equal ones the lower experts, in ascending order. With
/// `bias` [E] (fp32; undefined: none) the sum of score and bias is compared; of several groups only the best are
/// compared, by the sum of their two largest (DeepSeek-V3 2024). logits: fp32 [N, E]. Returns int32 [N, k].
[[nodiscard]] at::Tensor choose_experts(const at::Tensor& logits, const model::Experts& router, const at::Tensor& bias);

/// The weights of each token's experts, fp32 [N, k]: router.scale times their scores, where router.normalized divided
/// by the sum over the chosen ones. experts: int32 [N, k].
[[nodiscard]] at::Tensor expert_weights(const at::Tensor& logits, const at::Tensor& experts,
                                        const model::Experts& router);

/// Weights of the router's losses. balance: the sequence-wise balance loss (DeepSeek-V3 2024, equations 17 to 20) of
/// each sequence, the sum over experts of f P, where f = E / (k T) times the choices of the expert, which is a
/// constant, and P the mean of its score, divided by the sum of the token's scores. z: the squared log-partition of the
/// logits of each token (ST-MoE, Zoph et al. 2022).
struct RouterScales {
  double balance = 0, z = 0;
};
struct RouterLosses {
  double balance = 0, z = 0;  ///< summed, times their scales
  at::Tensor on_device{};     ///< on a GPU both instead, fp64 [2]; undefined if both scales are 0
};

/// Sequences of a router's tokens: token i is number `first` + i of consecutive sequences of `length` tokens. If other
/// ranks have other tokens of the same sequences, `loads` are the sums over ranks, fp32 [B, E].
struct Sequences {
  std::int64_t length = 0, first = 0;
  at::Tensor loads{};
};
/// Number of choices of each expert in each of `count` sequences: fp32 [count, E].
[[nodiscard]] at::Tensor sequence_loads(const at::Tensor& experts, const Sequences& of, std::int64_t count,
                                        std::int64_t all_experts);

/// Writes d_logits [N, E] fp32: the gradient through `expert_weights` and of the losses. d_weights: fp32 [N, k].
/// Returns the losses: of a divided sequence this rank's part.
RouterLosses router_backward(const at::Tensor& d_weights, const at::Tensor& logits, const at::Tensor& experts,
                             const Sequences& sequences, const model::Experts& router, RouterScales scales,
                             const at::Tensor& d_logits);

/// The rows of all experts, sorted by expert and then by token.
struct ExpertRows {
  std::vector<std::int64_t> begin;  ///< [E + 1]: rows [begin[e], begin[e + 1]) are of expert e
  at::Tensor choice;                ///< int32 [R]: the element of the choice [N, k] that each row is
  at::Tensor place;                 ///< int32 [N, k]: the row of each element of the choice
  /// On a GPU: `begin` there, int32 [E + 1]; its copy on the host is complete when the event is.
  at::Tensor begin_on_device{}, arriving{};
  std::shared_ptr<c10::Event> arrived{};
};
/// tokens: how many each expert has, if that is known. If not, `begin` is empty on a GPU until `fetch_begin`.
[[nodiscard]] ExpertRows expert_rows(const at::Tensor& experts, std::int64_t count,
                                     std::span<const std::int64_t> tokens = {});
/// Fills `begin` if it is empty: the host waits until the GPU has sorted the rows.
void fetch_begin(ExpertRows& rows);

/// The tokens of the rows: [R, D] of x [N, D].
[[nodiscard]] at::Tensor gather_rows(const at::Tensor& x, const ExpertRows& rows);

/// out [N, D] = residual (if it is defined) + the sum of each token's rows of `values` [R, D], in the order of their
/// experts, in fp32, rounded once.
void sum_rows(const at::Tensor& values, const ExpertRows& rows, const at::Tensor& residual, const at::Tensor& out);

/// out [R, I] = each row of `values` [R, I] times its weight. out may be values.
void scale_rows(const at::Tensor& values, const at::Tensor& weights, const ExpertRows& rows, const at::Tensor& out);

/// The gradient by the weights, fp32 [N, k]: the product of each row of `values` with that of d_scaled, both [R, I].
[[nodiscard]] at::Tensor weight_gradients(const at::Tensor& d_scaled, const at::Tensor& values, const ExpertRows& rows);

/// On a GPU: rows from_begin[s] on of `from` to rows to_begin[s] on of `to`, for every segment s. Those of `to` follow
/// each other and fill it.
void move_segments(const at::Tensor& from, std::span<const std::int64_t> from_begin,
                   std::span<const std::int64_t> to_begin, const at::Tensor& to);

}  // namespace trireme::kernels
