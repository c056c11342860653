// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "trireme/kernels/rope.hpp"
#include "trireme/nn/stage.hpp"

namespace trireme::nn {

/// What stands between a norm and the residual stream: y = f(h). Under tensor parallelism f is this rank's heads or
/// columns, and y its term of the sum over the tensor axis. Its backward is in two parts, because the gradient by h can
/// be on its way to other ranks while those by the parameters are computed.
class Branch {
 public:
  virtual ~Branch() = default;

  /// How many tensors Mode::train saves; where all is kept there may be more behind them.
  [[nodiscard]] virtual std::size_t products() const = 0;

  /// y (+ residual where it is defined), [N, D]; undefined in Mode::rebuild. h: [N, D]. Appends to `saved` what
  /// backward_input takes, in the modes that save.
  virtual at::Tensor forward(const at::Tensor& h, const at::Tensor& residual, std::span<const at::Tensor> parameters,
                             const Microbatch& microbatch, Mode mode, std::vector<at::Tensor>& saved) const = 0;

  /// The gradient by h, [N, D]. saved: what forward appended; becomes what backward_weight takes.
  virtual at::Tensor backward_input(const at::Tensor& d_y, std::span<const at::Tensor> parameters,
                                    const Microbatch& microbatch, std::vector<at::Tensor>& saved) const = 0;

  /// Writes the gradients by the parameters. h: as in forward.
  virtual void backward_weight(const at::Tensor& h, std::span<const Grad> grads,
                               const std::vector<at::Tensor>& saved) const = 0;
};

/// o(attention(q(h), k(h), v(h))), causal, grouped-query, rotary where the form says so. Parameters: {q
/// [heads*head_dim, D], k, v [kv_heads*head_dim, D], o [D, heads*head_dim]}, or with a joint projection and biases
/// {q|k|v, its bias, o, its bias}. Saves q|k|v after RoPE, the attention's output, its log-sum-exp.
class AttentionBranch final : public Branch {
 public:
  /// adds_bias: this rank adds the bias of o: one of those that are summed does.
  AttentionBranch(const model::Sizes& sizes, std::int64_t max_seq_len, bool adds_bias, at::Device device = at::kCPU);
  [[nodiscard]] std::size_t products() const override { return 3; }
  at::Tensor forward(const at::Tensor& h, const at::Tensor& residual, std::span<const at::Tensor> parameters,
                     const Microbatch& microbatch, Mode mode, std::vector<at::Tensor>& saved) const override;
  at::Tensor backward_input(const at::Tensor& d_y, std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                            std::vector<at::Tensor>& saved) const override;
  void backward_weight(const at::Tensor& h, std::span<const Grad> grads,
                       const std::vector<at::Tensor>& saved) const override;

 private:
  model::Sizes sizes_;
  bool adds_bias_;
  kernels::RopeTable table_;
};

/// down(silu(gate(h)) * up(h)): {gate [I, D], up [I, D], down [D, I]}. Saves gate|up; where all is kept,
/// silu(gate) * up, too.
class SwigluBranch final : public Branch {
 public:
  [[nodiscard]] std::size_t products() const override { return 1; }
  at::Tensor forward(const at::Tensor& h, const at::Tensor& residual, std::span<const at::Tensor> parameters,
                     const Microbatch& microbatch, Mode mode, std::vector<at::Tensor>& saved) const override;
  at::Tensor backward_input(const at::Tensor& d_y, std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                            std::vector<at::Tensor>& saved) const override;
  void backward_weight(const at::Tensor& h, std::span<const Grad> grads,
                       const std::vector<at::Tensor>& saved) const override;
};

/// down(gelu(up(h))): {up [I, D], its bias, down [D, I], its bias}. Saves up(h); where all is kept, gelu of it, too.
class GeluBranch final : public Branch {
 public:
  /// adds_bias: this rank adds the bias of down.
  explicit GeluBranch(bool adds_bias) : adds_bias_(adds_bias) {}
  [[nodiscard]] std::size_t products() const override { return 1; }
  at::Tensor forward(const at::Tensor& h, const at::Tensor& residual, std::span<const at::Tensor> parameters,
                     const Microbatch& microbatch, Mode mode, std::vector<at::Tensor>& saved) const override;
  at::Tensor backward_input(const at::Tensor& d_y, std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                            std::vector<at::Tensor>& saved) const override;
  void backward_weight(const at::Tensor& h, std::span<const Grad> grads,
                       const std::vector<at::Tensor>& saved) const override;

 private:
  bool adds_bias_;
};

/// The branch of a stage of this kind: attention or mlp, whole or cut. device: where its tensors will lie.
[[nodiscard]] std::unique_ptr<Branch> make_branch(model::StageKind kind, const model::Sizes& sizes,
                                                  std::int64_t max_seq_len, bool adds_bias,
                                                  at::Device device = at::kCPU);

}  // namespace trireme::nn
