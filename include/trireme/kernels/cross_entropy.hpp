// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::kernels {

// Softmax cross-entropy of rows of logits [N, vocab] (fp32 or bf16; fp32 inside), targets [N] int32, -1 where not
// counted. Log-sum-exp around the row's maximum; losses are summed in fp64 in row order. Throws BugError for a target
// outside the vocabulary.

/// Sum over the counted rows of logsumexp(row) - row[target].
[[nodiscard]] double cross_entropy(const at::Tensor& logits, const at::Tensor& targets);

/// The same sum; the logits become scale * (softmax(row) - onehot(target)), zeros in rows not counted.
[[nodiscard]] double cross_entropy_backward(const at::Tensor& logits, const at::Tensor& targets, double scale);

}  // namespace trireme::kernels
