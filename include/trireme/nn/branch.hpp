// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trireme/kernels/attention.hpp"
#include "trireme/nn/queries_and_keys.hpp"
#include "trireme/nn/stage.hpp"

namespace trireme::nn {

/// Computation between a norm and the residual stream: y = f(h). Under tensor parallelism f is this rank's heads or
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

/// Where the parameters of each role stand in a branch's list.
class Slots {
 public:
  Slots(model::StageKind branch, const model::Decoder& decoder) : roles_(model::roles_of(branch, decoder)) {}
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

/// Output of a branch: scale (x w^T + bias), + residual where that is defined. weight, bias: their places.
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

/// o(attention(q(h), k(h), v(h))), causal, grouped-query, rotary unless positions are learned. Parameters: roles_of
/// (attention_branch). Saves q|k|v after RoPE, the attention's output, its log-sum-exp; with a norm of queries and keys
/// q|k|v before it, and last the rstd of each of their pieces, [pieces, N].
class AttentionBranch final : public Branch {
 public:
  /// adds_bias: this rank adds the bias of o: one of those that are summed does.
  /// stage: its window, and whether it rotates.
  AttentionBranch(const model::Sizes& sizes, const model::Stage& stage, std::int64_t max_seq_len, bool adds_bias,
                  at::Device device = at::kCPU);
  [[nodiscard]] std::size_t products() const override { return heads_.norms() ? 4 : 3; }
  at::Tensor forward(const at::Tensor& h, const at::Tensor& residual, std::span<const at::Tensor> parameters,
                     const Microbatch& microbatch, Mode mode, std::vector<at::Tensor>& saved) const override;
  at::Tensor backward_input(const at::Tensor& d_y, std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                            std::vector<at::Tensor>& saved) const override;
  void backward_weight(const at::Tensor& h, std::span<const Grad> grads,
                       const std::vector<at::Tensor>& saved) const override;

 private:
  [[nodiscard]] kernels::AttentionShape shape_of(const Microbatch& microbatch) const;

  model::Sizes sizes_;
  std::int64_t window_;
  Slots slots_;
  JointLinear qkv_;
  OutputLinear out_;
  QueriesAndKeys heads_;
};

/// down(activation(gate(h), up(h))), or down(activation(up(h))) without a gate. Parameters: roles_of(mlp_branch). Saves
/// gate|up; where all is kept, what down reads, too.
class MlpBranch final : public Branch {
 public:
  /// adds_bias: this rank adds the bias of down.
  MlpBranch(const model::Decoder& decoder, bool adds_bias, const model::Fp8Products& fp8);
  [[nodiscard]] std::size_t products() const override { return 1; }
  at::Tensor forward(const at::Tensor& h, const at::Tensor& residual, std::span<const at::Tensor> parameters,
                     const Microbatch& microbatch, Mode mode, std::vector<at::Tensor>& saved) const override;
  at::Tensor backward_input(const at::Tensor& d_y, std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                            std::vector<at::Tensor>& saved) const override;
  void backward_weight(const at::Tensor& h, std::span<const Grad> grads,
                       const std::vector<at::Tensor>& saved) const override;

 private:
  model::Activation activation_;
  Slots slots_;
  JointLinear inner_;
  OutputLinear out_;
};

/// Mode::generate: puts the keys and values of the microbatch behind those in `cached`, which is allocated first.
void extend_cache(const at::Tensor& k, const at::Tensor& v, const kernels::AttentionShape& shape, std::int64_t window,
                  const Microbatch& microbatch, std::vector<at::Tensor>& cached);

/// The linear layers before and behind attention. adds_bias: this rank adds the bias of o.
[[nodiscard]] JointLinear projection_of(const model::Decoder& decoder, const Slots& slots,
                                        const model::Fp8Products& fp8);
[[nodiscard]] OutputLinear output_of(const model::Decoder& decoder, const Slots& slots, bool adds_bias,
                                     const model::Fp8Products& fp8);

/// The branch of a stage of attention or mlp, whole or cut. sizes: what this rank holds. device: where its tensors will
/// lie.
[[nodiscard]] std::unique_ptr<Branch> make_branch(const model::Stage& stage, const model::Sizes& sizes,
                                                  std::int64_t max_seq_len, bool adds_bias,
                                                  at::Device device = at::kCPU);

}  // namespace trireme::nn
