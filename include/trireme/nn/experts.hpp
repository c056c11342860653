// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/kernels/experts.hpp"
#include "trireme/nn/norm.hpp"
#include "trireme/nn/stage.hpp"

/// What expert parallelism cuts a layer of experts into. All are local: rows go to the ranks of their experts and back
/// between them. The third, merge, is kernels::sum_rows.
namespace trireme::nn {

/// Norm and router. Saves x, the statistics of the norm, the logits, the choice; where all is kept, h. The choice is
/// made once: where it runs again it is given it. Parameters: roles_of(route).
class Route {
 public:
  explicit Route(const model::Sizes& sizes);

  /// A token's rows are one for each of its experts.
  struct Rows {
    at::Tensor rows;                ///< [R, D], sorted by expert and then by token
    at::Tensor weights;             ///< fp32 [R]
    kernels::ExpertRows by_expert;  ///< where the rows of a token are
  };
  [[nodiscard]] Rows forward(const at::Tensor& x, std::span<const at::Tensor> parameters, Mode mode,
                             Saved& saved) const;
  /// The places of the rows, from what forward saved.
  [[nodiscard]] kernels::ExpertRows rows_of(const std::vector<at::Tensor>& saved) const;
  /// d_rows [R, D] and d_weights fp32 [R]: gradients by what forward returned. d_hidden: of the residual stream.
  [[nodiscard]] Result backward(const at::Tensor& d_rows, const at::Tensor& d_weights, const at::Tensor& d_hidden,
                                const kernels::ExpertRows& by_expert, std::span<const at::Tensor> parameters,
                                std::span<const Grad> grads, const Microbatch& microbatch,
                                const std::vector<at::Tensor>& saved) const;

 private:
  model::Experts experts_;
  Norm norm_;
  std::size_t router_;  ///< its place
};

/// weight * down(silu(gate(row)) * up(row)) of the experts that a rank has. Saves the rows, their weights, gate|up;
/// where all is kept, what down reads before its weight. Of all experts' parameters it uses its own.
class HeldExperts {
 public:
  HeldExperts(const model::Sizes& sizes, const model::ExpertPart& part);

  /// What the experts make of rows [R, D], sorted by expert: rows [begin[e], begin[e + 1]) are of the rank's expert e;
  /// weights: fp32 [R]. Undefined in Mode::rebuild.
  [[nodiscard]] at::Tensor forward(const at::Tensor& rows, const at::Tensor& weights,
                                   std::span<const std::int64_t> begin, std::span<const at::Tensor> parameters,
                                   Mode mode, Saved& saved) const;
  struct Gradients {
    at::Tensor rows, weights;
  };
  [[nodiscard]] Gradients backward(const at::Tensor& d_out, std::span<const std::int64_t> begin,
                                   std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                                   std::vector<at::Tensor> saved) const;

 private:
  std::int64_t size_, held_;
  std::size_t first_;  ///< of its parameters
};

}  // namespace trireme::nn
