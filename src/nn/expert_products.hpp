// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/kernels/experts.hpp"
#include "trireme/model/fp8.hpp"
#include "trireme/nn/stage.hpp"

namespace trireme::nn {

/// Zeroes the gradient of an unused parameter.
void no_gradient(const Grad& grad);

/// The products of some experts over rows sorted by expert: rows [begin[e], begin[e + 1]) belong to expert e. One after
/// the other; on a GPU grouped if kernels::multiplies_in_groups, except for fp32 weight gradients, which are
/// accumulated. Parameters: gate and up of an expert adjacent, every expert's down after them. An expert without rows
/// writes zero gradients.
struct ExpertProducts {
  std::int64_t count = 0;
  Fp8 of_gate_up = Fp8::none, of_down = Fp8::none;

  ExpertProducts(std::int64_t experts, const model::Fp8Products& fp8)
      : count(experts), of_gate_up(fp8.of(model::Role::expert_gate)), of_down(fp8.of(model::Role::expert_down)) {}

  /// Gate and up, [R, 2I], of inputs [R, D].
  [[nodiscard]] at::Tensor gate_up(const at::Tensor& inputs, std::span<const std::int64_t> begin,
                                   std::span<const at::Tensor> parameters) const;
  /// Down projection, [R, D], of its input, [R, I].
  [[nodiscard]] at::Tensor down(const at::Tensor& inner, std::span<const std::int64_t> begin,
                                std::span<const at::Tensor> parameters) const;
  /// The gradient of down's input, [R, I].
  [[nodiscard]] at::Tensor backward_down(const at::Tensor& d_rows, std::span<const std::int64_t> begin,
                                         std::span<const at::Tensor> parameters) const;
  /// The gradient by the inputs, [R, D].
  [[nodiscard]] at::Tensor backward_gate_up(const at::Tensor& d_gate_up, std::span<const std::int64_t> begin,
                                            std::span<const at::Tensor> parameters) const;
  /// Writes the gradients of all parameters. inner: down's input.
  void backward_weight(const at::Tensor& d_rows, const at::Tensor& inner, const at::Tensor& d_gate_up,
                       const at::Tensor& inputs, std::span<const std::int64_t> begin,
                       std::span<const Grad> grads) const;

 private:
  /// The matrices of all experts, those of each one above the other: [count, rows, columns]. Undefined if they do
  /// not follow each other, or the product rounds to fp8.
  [[nodiscard]] at::Tensor stacked(std::span<const at::Tensor> matrices, Fp8 fp8) const;
  [[nodiscard]] std::span<const at::Tensor> gates(std::span<const at::Tensor> parameters) const {
    return parameters.first(static_cast<std::size_t>(2 * count));
  }
  [[nodiscard]] std::span<const at::Tensor> downs(std::span<const at::Tensor> parameters) const {
    return parameters.subspan(static_cast<std::size_t>(2 * count), static_cast<std::size_t>(count));
  }
  [[nodiscard]] std::size_t down_of(std::int64_t e) const { return static_cast<std::size_t>(2 * count + e); }
};

}  // namespace trireme::nn
