// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <vector>

#include "trireme/nn/stage.hpp"

namespace trireme::nn {

/// Positions of each role's parameters in a stage's list.
class Slots {
 public:
  Slots(model::StageKind stage, const model::Decoder& decoder) : roles_(model::roles_of(stage, decoder)) {}
  [[nodiscard]] bool has(model::Role role) const;
  /// Throws BugError where there is none.
  [[nodiscard]] std::size_t operator[](model::Role role) const;
  [[nodiscard]] std::size_t count() const { return roles_.size(); }

 private:
  std::vector<model::Role> roles_;
};

/// Linear layers with adjacent outputs: their weights follow each other in the list, and so do their biases.
struct JointLinear {
  std::size_t weights = 0, count = 1;  ///< the first one's place, and how many there are
  std::optional<std::size_t> biases;   ///< the first one's place
  Fp8 fp8 = Fp8::none;                 ///< of the forward and of the gradient by x

  [[nodiscard]] at::Tensor forward(const at::Tensor& x, std::span<const at::Tensor> parameters) const;
  [[nodiscard]] at::Tensor backward_input(const at::Tensor& d_y, std::span<const at::Tensor> parameters) const;
  void backward_weight(const at::Tensor& d_y, const at::Tensor& x, std::span<const Grad> grads) const;
};

/// Output of a stage: scale (x w^T + bias), + residual where that is defined. weight, bias: their places.
struct OutputLinear {
  std::size_t weight = 0;
  std::optional<std::size_t> bias{};
  double scale = 1;
  bool adds_bias = true;  ///< this rank does: one of those that are summed
  Fp8 fp8 = Fp8::none;    ///< of the forward and of the gradient by x

  [[nodiscard]] at::Tensor forward(const at::Tensor& x, const at::Tensor& residual,
                                   std::span<const at::Tensor> parameters) const;
  /// The gradient by x w^T + bias.
  [[nodiscard]] at::Tensor scaled(const at::Tensor& d_y) const;
  /// d_y: scaled. The gradient by x.
  [[nodiscard]] at::Tensor backward_input(const at::Tensor& d_y, std::span<const at::Tensor> parameters) const;
  void backward_weight(const at::Tensor& d_y, const at::Tensor& x, std::span<const Grad> grads) const;
};

/// The linear layers before and behind attention. adds_bias: this rank adds the bias of o.
[[nodiscard]] JointLinear projection_of(const model::Decoder& decoder, const Slots& slots,
                                        const model::Fp8Products& fp8);
[[nodiscard]] OutputLinear output_of(const model::Decoder& decoder, const Slots& slots, bool adds_bias,
                                     const model::Fp8Products& fp8);

}  // namespace trireme::nn
