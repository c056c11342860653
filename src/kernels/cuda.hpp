// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "trireme/kernels/attention.hpp"
#include "trireme/kernels/fp8.hpp"
#include "trireme/kernels/grad.hpp"
#include "trireme/kernels/rms_norm.hpp"
#include "trireme/kernels/rope.hpp"

/// The kernels for tensors on a CUDA device, with the same contracts. They run on the calling thread's current stream
/// (c10::cuda) and return at once; workspace is from the caching allocator. The functions in trireme::kernels call them
/// if their first tensor is on a device; tests call both. A build without CUDA has no_cuda.cpp instead, where each
/// throws BugError.
namespace trireme::kernels::cuda {

void rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& y, const at::Tensor& rstd,
              float offset = 0);
void rms_norm_again(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd, const at::Tensor& y,
                    float offset = 0);
/// The weight's gradient is summed over fixed chunks of rows, then over chunks in a fixed order: no atomics.
void rms_norm_backward(const at::Tensor& d_y, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                       const at::Tensor& d_residual, const at::Tensor& d_x, const Grad& d_weight, float offset = 0);

/// False, without computing, unless heads are whole packs of 16 bytes, up to 32 of them.
[[nodiscard]] bool rms_norm_heads(const at::Tensor& x, const HeadNorms& norms, double eps, const at::Tensor& y,
                                  const at::Tensor& rstd, bool again);
[[nodiscard]] bool rms_norm_heads_backward(const at::Tensor& d_y, const at::Tensor& x, const HeadNorms& norms,
                                           const at::Tensor& rstd, const at::Tensor& d_x, const Grad& d_q_weight,
                                           const Grad& d_k_weight);

void layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps, const at::Tensor& y,
                const at::Tensor& statistics);
void layer_norm_again(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      const at::Tensor& statistics, const at::Tensor& y);
void layer_norm_backward(const at::Tensor& d_y, const at::Tensor& x, const at::Tensor& weight,
                         const at::Tensor& statistics, const at::Tensor& d_residual, const at::Tensor& d_x,
                         const Grad& d_weight, const Grad& d_bias);

/// The table is on the device of x.
void rotate(const at::Tensor& x, const RopeTable& table, std::int64_t seq_len, Rotation direction);

void swiglu(const at::Tensor& gate_up, const at::Tensor& out);
void swiglu_backward(const at::Tensor& d_out, const at::Tensor& gate_up, const at::Tensor& d_gate_up,
                     const at::Tensor& out);
void geglu_tanh(const at::Tensor& gate_up, const at::Tensor& out);
void geglu_tanh_backward(const at::Tensor& d_out, const at::Tensor& gate_up, const at::Tensor& d_gate_up,
                         const at::Tensor& out);
void gelu_tanh(const at::Tensor& x, const at::Tensor& out);
void gelu_tanh_backward(const at::Tensor& d_out, const at::Tensor& x, const at::Tensor& d_x, const at::Tensor& out);

void add_bias(const at::Tensor& y, const at::Tensor& bias);
void bias_gradient(const at::Tensor& d_y, const Grad& d_bias);

/// ids are not checked before: one outside the table stops the grid with a failed assertion.
void embedding_gather(const at::Tensor& ids, const at::Tensor& table, const at::Tensor& out);
/// Sorts the ids; each row of the gradient is written by one thread a column: no atomics.
void embedding_scatter_add(const at::Tensor& ids, const at::Tensor& d_out, const Grad& d_table);
void embedding_gather_part(const at::Tensor& ids, std::int64_t first, const at::Tensor& table, const at::Tensor& out);
void embedding_scatter_add_part(const at::Tensor& ids, std::int64_t first, const at::Tensor& d_out,
                                const Grad& d_table);

void cast(const at::Tensor& from, const at::Tensor& to);
void add_into(const at::Tensor& from, const at::Tensor& to);

/// loss: LossSums as [2] fp64 on the device; the sums are added to it.
void cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& loss);
void cross_entropy_backward(const at::Tensor& logits, const at::Tensor& targets, double scale, double z_loss,
                            const at::Tensor& loss);
void vocabulary_statistics(const at::Tensor& logits, const at::Tensor& targets, std::int64_t first,
                           const at::Tensor& statistics);
void combine_statistics(const at::Tensor& gathered, const at::Tensor& targets, const at::Tensor& softmax, double z_loss,
                        const at::Tensor& loss);
void cross_entropy_gradient_part(const at::Tensor& logits, const at::Tensor& targets, std::int64_t first,
                                 const at::Tensor& softmax, double scale, double z_loss);

// Matrix products go to cuBLAS, which sums in fp32: bf16 products into an fp32 gradient are added there.
[[nodiscard]] at::Tensor linear(const at::Tensor& x, const at::Tensor& w);
[[nodiscard]] at::Tensor linear_add(const at::Tensor& x, const at::Tensor& w, const at::Tensor& residual);
[[nodiscard]] at::Tensor linear_backward_input(const at::Tensor& d_y, const at::Tensor& w);
void linear_backward_weight(const at::Tensor& d_y, const at::Tensor& x, const Grad& grad);
/// Workspace of cuBLASLt: see trireme/kernels/product_workspace.hpp.
[[nodiscard]] std::shared_ptr<const void> keep_product_workspace(at::Device device);

/// An operand of an fp8 product as _scaled_mm takes it: codes [outer, summed] and their scales, [outer, 1] fp32, one of
/// all [1, 1], or with mx bytes in tiles.
struct Fp8Operand {
  at::Tensor values, scales;
};
[[nodiscard]] Fp8Operand fp8_quantize(const at::Tensor& x, const Fp8Rounding& rounding);
[[nodiscard]] at::Tensor fp8_linear(Fp8 recipe, const at::Tensor& x, const at::Tensor& w);
[[nodiscard]] at::Tensor fp8_backward_input(Fp8 recipe, const at::Tensor& d_y, const at::Tensor& w);

/// By libtorch's flash or cuDNN kernels, or by `dense`: see attention_library.hpp.
void causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionShape& shape,
                      const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& document_begin);
[[nodiscard]] Attended attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionShape& shape, const at::Tensor& document_begin);
void causal_attention_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const at::Tensor& out, const at::Tensor& logsumexp, const AttentionShape& shape,
                               const at::Tensor& d_q, const at::Tensor& d_k, const at::Tensor& d_v,
                               const at::Tensor& document_begin, const Rotated& rotated);

}  // namespace trireme::kernels::cuda
