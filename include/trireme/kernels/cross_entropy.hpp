// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/kernels/loss_sums.hpp"

namespace trireme::kernels {

// Softmax cross-entropy of rows of logits [N, vocab] (fp32 or bf16; fp32 inside), targets [N] int32, -1 if not
// counted. Log-sum-exp around the row's maximum; losses are summed in fp64 in a fixed order (on the host that of the
// rows). Throws BugError for a target outside the vocabulary; on a device that stops the kernel instead.

/// Sum over the counted rows of logsumexp(row) - row[target]. Waits for a device.
[[nodiscard]] double cross_entropy(const at::Tensor& logits, const at::Tensor& targets);

/// The same sum, and that of z_loss * logsumexp(row)^2. The logits become the gradient of both, zeros in rows not
/// counted: scale * (softmax(row) * (1 + 2 * z_loss * logsumexp(row)) - onehot(target)). z_loss: 0 for none.
[[nodiscard]] LossSums cross_entropy_backward(const at::Tensor& logits, const at::Tensor& targets, double scale,
                                              double z_loss);

/// The same two; the sums are added to `loss`, LossSums as [2] fp64 on the device of the logits, without a wait of the
/// host.
void add_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& loss);
void add_cross_entropy_backward(const at::Tensor& logits, const at::Tensor& targets, double scale, double z_loss,
                                const at::Tensor& loss);

}  // namespace trireme::kernels
