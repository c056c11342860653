// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trireme/kernels/grad.hpp"
#include "trireme/kernels/loss_sums.hpp"

// The embedding and the loss where a rank holds tokens [first, first + rows) of the vocabulary only. ids and targets
// are those of the whole vocabulary, int32 [N]; targets are -1 if not counted.
namespace trireme::kernels {

/// Writes out[n] = table[ids[n] - first], zeros if another rank holds the row. table: [rows, D]; out: [N, D].
void embedding_gather_part(const at::Tensor& ids, std::int64_t first, const at::Tensor& table, const at::Tensor& out);

/// Adds d_out[n] to row ids[n] - first of the gradient if it is here; otherwise as embedding_scatter_add.
void embedding_scatter_add_part(const at::Tensor& ids, std::int64_t first, const at::Tensor& d_out,
                                const Grad& d_table);

/// Statistics of a rank for every token: the maximum of its logits, the sum of exp(logit - maximum), and the target's
/// logit, 0 if another rank has it. logits: [N, rows] fp32 or bf16; statistics: [N, 3] fp32.
void vocabulary_statistics(const at::Tensor& logits, const at::Tensor& targets, std::int64_t first,
                           const at::Tensor& statistics);

/// All ranks' statistics, [ranks, N, 3], as the maximum and the sum over the whole vocabulary, [N, 2] fp32. Returns the
/// sums of the counted tokens' losses, in fp64 in the order of tokens: the same bits on all ranks. Opens no parallel
/// region.
[[nodiscard]] LossSums combine_statistics(const at::Tensor& gathered, const at::Tensor& targets,
                                          const at::Tensor& softmax, double z_loss);
/// The same; the sums are added to `loss`, [2] fp64 on the device of `gathered`, without a wait of the host.
void combine_statistics(const at::Tensor& gathered, const at::Tensor& targets, const at::Tensor& softmax, double z_loss,
                        const at::Tensor& loss);

/// Turns logits [N, rows] into their part of the gradient of cross_entropy_backward. softmax: the output of
/// combine_statistics.
void cross_entropy_gradient_part(const at::Tensor& logits, const at::Tensor& targets, std::int64_t first,
                                 const at::Tensor& softmax, double scale, double z_loss);

}  // namespace trireme::kernels
