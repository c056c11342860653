// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/kernels/grad.hpp"

namespace trireme::kernels {

/// Writes out[n] = table[ids[n]]. ids: [N] int32; table: [vocab, D]; out: [N, D], fp32 or bf16. Throws BugError for an
/// id outside the table.
void embedding_gather(const at::Tensor& ids, const at::Tensor& table, const at::Tensor& out);

/// Adds d_out[n] (fp32 or bf16) to row ids[n] of the gradient; the whole gradient is zeroed first unless it
/// accumulates. Rows of one id are added in the order of n for any number of threads: no atomics.
void embedding_scatter_add(const at::Tensor& ids, const at::Tensor& d_out, const Grad& d_table);

}  // namespace trireme::kernels
