// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/nn/experts.hpp"
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

/// The rows of a choice of one expert for each token: row i is token i.
[[nodiscard]] kernels::ExpertRows one_by_one(std::int64_t rows, const at::TensorOptions& options);

/// The shared experts, as one: x + down(silu(gate(h)) * up(h)). If gated, down's input is multiplied by
/// sigmoid(weight(h)), in fp32 like a router. Parameters: the weight if gated; gate, up, down. Saves gate|up, and the
/// logit if gated; with Keep::all also down's input before weighting.
class SharedExpert {
 public:
  SharedExpert(const model::Experts& experts, const model::Fp8Products& fp8)
      : width_(experts.shared_size),
        gated_(experts.shared == model::SharedExperts::gated),
        of_gate_up_(fp8.of(model::Role::shared_gate)),
        of_down_(fp8.of(model::Role::shared_down)) {}

  [[nodiscard]] std::size_t parameters() const { return gated_ ? 4 : 3; }
  /// Number of saved tensors without Keep::all.
  [[nodiscard]] std::size_t products() const { return gated_ ? 2 : 1; }

  /// Adds to `saved`, and where all is kept to `kept`, in the modes that save. Undefined in Mode::rebuild.
  [[nodiscard]] at::Tensor forward(const at::Tensor& h, const at::Tensor& x, std::span<const at::Tensor> parameters,
                                   Mode mode, std::vector<at::Tensor>& saved, std::vector<at::Tensor>& kept) const;
  /// The gradient of h. kept: the tensor kept by forward, or undefined. Appends the inputs of the parameter gradients
  /// to `pending`: down's input, the gradient of gate|up, and that of the logit if gated.
  [[nodiscard]] at::Tensor backward_input(const at::Tensor& d_out, std::span<const at::Tensor> parameters,
                                          std::span<const at::Tensor> saved, const at::Tensor& kept,
                                          std::vector<at::Tensor>& pending) const;
  void backward_weight(const at::Tensor& d_out, const at::Tensor& h, std::span<const kernels::Grad> grads,
                       std::span<const at::Tensor> pending) const;

 private:
  /// Input of down, before its weight.
  [[nodiscard]] at::Tensor inner_of(const at::Tensor& gate_up) const;

  std::int64_t width_;
  bool gated_;
  Fp8 of_gate_up_, of_down_;
};

/// y = x + shared experts of h + the sum over a token's experts of weight * down(silu(gate(h)) * up(h)), h = norm(x)
/// (Shazeer et al. 2017). The router's logits and everything computed from them are fp32. No token is dropped. Products
/// are computed expert by expert over rows sorted by expert; down's input is weighted, so that the outputs of experts
/// need not be saved. Parameters: roles_of(moe). Saves the tensors of Route, and gate|up of all rows; with Keep::all
/// also down's input before weighting. The choice is made once and reused in a recompute. Between the two parts of a
/// backward it keeps the gradient of its output, the choice, down's input, the gradient of gate|up, and the tensors of
/// Route.
class Moe final : public Stage {
 public:
  explicit Moe(const model::Sizes& sizes, const model::Fp8Products& fp8);
  Result forward(at::Tensor hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch, Mode mode,
                 Saved& saved) const override;
  Result backward(at::Tensor d_hidden, std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                  const Microbatch& microbatch, Saved saved) const override;
  Result backward_input(at::Tensor d_hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                        Saved& saved) const override;
  void backward_weight(std::span<const Grad> grads, const Saved& saved) const override;

 private:
  /// Number of its parameters.
  [[nodiscard]] std::size_t parameters() const {
    return route_.parameters() + static_cast<std::size_t>(3 * experts_.count);
  }

  /// The two parts of a backward. by_expert: the places of the rows of tokens, set by the first part.
  [[nodiscard]] Result input_gradient(const at::Tensor& d_hidden, std::span<const at::Tensor> parameters,
                                      const Microbatch& microbatch, Saved& saved, kernels::ExpertRows& by_expert) const;
  void weight_gradients(const kernels::ExpertRows& by_expert, std::span<const Grad> grads, const Saved& saved) const;
  /// With sequence parallelism a rank's tokens are a part of the microbatch's.
  void expect_tokens(const at::Tensor& x, std::size_t parameters) const;

  std::int64_t hidden_;
  model::Experts experts_;
  Route route_;
  ExpertProducts products_;
};

}  // namespace trireme::nn
