// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <vector>

#include "trireme/nn/branch.hpp"
#include "trireme/nn/queries_and_keys.hpp"

namespace trireme::nn {

/// RMSNorm of queries and of keys over all heads of a token, of which this rank has a part, and RoPE: from the output
/// of a projection to the input of attention. Between its parts the ranks of the tensor axis sum their statistics, fp32
/// [2, N], first of queries, then of keys. Saves q|k before the norm and rstd [2, N]. Parameters: roles_of(qk_norm).
class QkNorm {
 public:
  /// sizes: what this rank holds. whole: of all ranks. copies: ranks that hold the same key head. seq_len: of whole
  /// sequences.
  QkNorm(const model::Sizes& sizes, const model::Sizes& whole, std::int64_t copies, const model::Stage& stage,
         std::int64_t seq_len, const model::ContextPart& part, at::Device device = at::kCPU);

  /// Sums over this rank's heads. qkv: [N, (heads + 2 kv_heads) * head_dim].
  [[nodiscard]] at::Tensor sums_of_squares(const at::Tensor& qkv) const;
  /// Queries and keys normed and turned in their place in `qkv`. sums: over all ranks.
  [[nodiscard]] at::Tensor forward(const at::Tensor& qkv, const at::Tensor& sums,
                                   std::span<const at::Tensor> parameters, const Microbatch& microbatch, Mode mode,
                                   std::vector<at::Tensor>& saved) const;
  /// Makes d_qkv what finish_backward needs, with the sums that this returns added up over all ranks. Appends the
  /// gradients by the weights to `saved`.
  [[nodiscard]] at::Tensor backward_input(const at::Tensor& d_qkv, std::span<const at::Tensor> parameters,
                                          const Microbatch& microbatch, std::vector<at::Tensor>& saved) const;
  /// Makes it the gradient by what forward read.
  void finish_backward(const at::Tensor& d_qkv, const at::Tensor& sums, const std::vector<at::Tensor>& saved) const;
  void backward_weight(std::span<const Grad> grads, const std::vector<at::Tensor>& saved) const;

 private:
  model::Sizes sizes_;
  float offset_;
  std::array<double, 2> widths_;  ///< that sums over all ranks count
  QueriesAndKeys turn_;           ///< RoPE alone
};

}  // namespace trireme::nn
