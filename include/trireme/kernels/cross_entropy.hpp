// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::kernels {

// Softmax cross-entropy of rows of logits [N, vocab] (fp32 or bf16; fp32 inside), targets [N] int32, -1 where not
// counted. Log-sum-exp around the row's maximum; losses are summed in fp64 in a fixed order (on the host that of the
// rows). Throws BugError for a target outside the vocabulary; on a device that stops the kernel instead.

/// Sum over the counted rows of logsumexp(row) - row[target]. Waits for a device.
[[nodiscard]] double cross_entropy(const at::Tensor& logits, const at::Tensor& targets);

/// The same sum; the logits become scale * (softmax(row) - onehot(target)), zeros in rows not counted.
[[nodiscard]] double cross_entropy_backward(const at::Tensor& logits, const at::Tensor& targets, double scale);

/// The same two; the sum is added to `loss`, [1] fp64 beside the logits, and nothing is waited for.
void add_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& loss);
void add_cross_entropy_backward(const at::Tensor& logits, const at::Tensor& targets, double scale,
                                const at::Tensor& loss);

}  // namespace trireme::kernels
