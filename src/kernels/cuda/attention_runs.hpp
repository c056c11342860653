// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/kernels/attention_library.hpp"

namespace trireme::kernels::cuda {

/// kernels::causal_attention and its backward where queries are runs (`AttentionShape::run`). flash by libtorch's,
/// whose causal mask is aligned at the bottom right if there are fewer queries than keys; cuDNN's is not: it runs
/// flash.
void attention_of_runs(AttentionLibrary library, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const AttentionShape& shape, const at::Tensor& out, const at::Tensor& logsumexp,
                       const at::Tensor& document_begin);
void attention_of_runs_backward(AttentionLibrary library, const at::Tensor& d_out, const at::Tensor& q,
                                const at::Tensor& k, const at::Tensor& v, const at::Tensor& out,
                                const at::Tensor& logsumexp, const AttentionShape& shape, const at::Tensor& d_q,
                                const at::Tensor& d_k, const at::Tensor& d_v, const at::Tensor& document_begin);

}  // namespace trireme::kernels::cuda
