// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/kernels/experts.hpp"
#include "trireme/nn/norm.hpp"
#include "trireme/nn/stage.hpp"

/// Parts of a layer of experts under expert parallelism. All are local: rows go to the ranks of their experts and back
/// between them. The third, merge, is kernels::sum_rows.
namespace trireme::nn {

/// Norm, router and shared experts: the computations for every token. Saves x, the statistics of the norm, the logits,
/// the choice, and the tensors of shared experts; with Keep::all also h and more of shared experts. The choice is made
/// once and reused in a recompute. Parameters: roles_of(route).
class Route {
 public:
  explicit Route(const model::Sizes& sizes, model::Fp8Products fp8);

  struct Tokens {
    at::Tensor h;                   ///< [N, D], normed
    at::Tensor hidden;              ///< [N, D]: x + shared experts of h; with these undefined in rebuild
    at::Tensor weights;             ///< fp32 [N, k]: of each token's experts
    kernels::ExpertRows by_expert;  ///< where the rows of a token are
  };
  [[nodiscard]] Tokens choose(const at::Tensor& x, std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                              Mode mode, Saved& saved) const;

  /// A token's rows are one for each of its experts.
  struct Rows {
    at::Tensor rows;                ///< [R, D], sorted by expert and then by token
    at::Tensor weights;             ///< fp32 [R]
    at::Tensor hidden;              ///< as of Tokens
    kernels::ExpertRows by_expert;  ///< as of Tokens
  };
  [[nodiscard]] Rows forward(const at::Tensor& x, std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                             Mode mode, Saved& saved) const;
  /// The experts of each token, int32 [N, k], from the tensors saved by a training forward of this stage or of a whole
  /// layer.
  [[nodiscard]] static const at::Tensor& choice_of(std::span<const at::Tensor> saved) {
    return saved.size() == 1 ? saved[0] : saved[3];
  }
  /// The places of the rows and the weights [N, k], from the saved tensors. tokens: as for kernels::expert_rows.
  [[nodiscard]] kernels::ExpertRows rows_of(std::span<const at::Tensor> saved,
                                            std::span<const std::int64_t> tokens) const;
  [[nodiscard]] at::Tensor weights_of(std::span<const at::Tensor> saved) const;
  /// Recomputes h.
  [[nodiscard]] at::Tensor normed(std::span<const at::Tensor> parameters, std::span<const at::Tensor> saved) const;
  /// d_rows [R, D] and d_weights, fp32 [N, k] or, of rows, [R]: gradients of forward's
  /// results. d_hidden: of the residual stream. Inputs of the parameter gradients
  /// replace the saved tensors: h, the gradients of the logits and of the norm's
  /// parameters, and those of shared experts. Later parameters are left unchanged.
  [[nodiscard]] Result backward_input(const at::Tensor& d_rows, const at::Tensor& d_weights, const at::Tensor& d_hidden,
                                      const kernels::ExpertRows& by_expert, std::span<const at::Tensor> parameters,
                                      const Microbatch& microbatch, std::vector<at::Tensor>& saved) const;
  /// d_hidden: only read where experts are shared.
  void backward_weight(const at::Tensor& d_hidden, std::span<const Grad> grads,
                       std::span<const at::Tensor> pending) const;
  [[nodiscard]] bool shares() const { return experts_.shared != model::SharedExperts::none; }

  [[nodiscard]] std::size_t parameters() const;
  /// Number of saved tensors, with Keep::all or without.
  [[nodiscard]] std::size_t saves_tensors(bool all) const;

 private:
  /// Index of the first parameter of shared experts.
  [[nodiscard]] std::size_t shared() const { return router_ + (experts_.choice_bias ? 2 : 1); }

  model::Experts experts_;
  model::Fp8Products fp8_;  ///< of shared experts
  Norm norm_;
  std::size_t router_;  ///< its place
};

/// weight * down(silu(gate(row)) * up(row)) of this rank's experts. Saves the rows, their weights, gate|up; with
/// Keep::all also down's input before weighting. Uses its part of the parameters of all experts.
class HeldExperts {
 public:
  HeldExperts(const model::Sizes& sizes, const model::ExpertPart& part, model::Fp8Products fp8);

  /// Output of the experts for rows [R, D], sorted by expert: rows [begin[e], begin[e + 1]) are of the rank's expert e;
  /// weights: fp32 [R]. Undefined in Mode::rebuild.
  [[nodiscard]] at::Tensor forward(const at::Tensor& rows, const at::Tensor& weights,
                                   std::span<const std::int64_t> begin, std::span<const at::Tensor> parameters,
                                   Mode mode, Saved& saved) const;
  struct Gradients {
    at::Tensor rows, weights;
  };
  /// Inputs of the parameter gradients replace the saved tensors: the rows, the gradients of the outputs, down's input,
  /// the gradient of gate|up.
  [[nodiscard]] Gradients backward_input(const at::Tensor& d_out, std::span<const std::int64_t> begin,
                                         std::span<const at::Tensor> parameters, std::vector<at::Tensor>& saved) const;
  void backward_weight(std::span<const std::int64_t> begin, std::span<const Grad> grads,
                       std::span<const at::Tensor> pending) const;

 private:
  model::Fp8Products fp8_;
  std::int64_t size_, held_;
  std::size_t first_;  ///< of its parameters
};

}  // namespace trireme::nn
