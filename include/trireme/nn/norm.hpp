// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "trireme/kernels/grad.hpp"
#include "trireme/model/model.hpp"

namespace trireme::nn {

/// RMSNorm {weight}, that times (1 + weight), or LayerNorm {weight, bias}, [D] each, as the decoder specifies. x: [N,
/// D].
class Norm {
 public:
  explicit Norm(const model::Sizes& sizes) : kind_(sizes.decoder.norm), eps_(sizes.norm_eps) {}

  /// Number of its parameters, the first ones of its stage.
  [[nodiscard]] std::size_t parameters() const { return kind_ == model::NormKind::layer ? 2 : 1; }

  struct Output {
    at::Tensor h;           ///< [N, D]
    at::Tensor statistics;  ///< fp32: rstd [N], or mean and rstd [2, N]
  };
  [[nodiscard]] Output forward(const at::Tensor& x, std::span<const at::Tensor> parameters) const;
  /// Recomputes h, the same bits.
  [[nodiscard]] at::Tensor again(const at::Tensor& x, std::span<const at::Tensor> parameters,
                                 const at::Tensor& statistics) const;
  /// d_residual + the gradient by x; it overwrites d_h. d_residual: undefined for none.
  [[nodiscard]] at::Tensor backward(const at::Tensor& d_h, const at::Tensor& x, std::span<const at::Tensor> parameters,
                                    const at::Tensor& statistics, const at::Tensor& d_residual,
                                    std::span<const kernels::Grad> grads) const;
  /// The same, with the gradients by the parameters appended to `d_parameters`, fp32 [D] each, for `put_gradients`.
  [[nodiscard]] at::Tensor backward_input(const at::Tensor& d_h, const at::Tensor& x,
                                          std::span<const at::Tensor> parameters, const at::Tensor& statistics,
                                          const at::Tensor& d_residual, std::vector<at::Tensor>& d_parameters) const;

 private:
  /// Added to the weight of RMSNorm.
  [[nodiscard]] float offset() const { return kind_ == model::NormKind::rms_plus_one ? 1 : 0; }

  model::NormKind kind_;
  double eps_;
};

/// Writes, or adds, gradients that have waited.
void put_gradients(std::span<const at::Tensor> gradients, std::span<const kernels::Grad> to);

}  // namespace trireme::nn
