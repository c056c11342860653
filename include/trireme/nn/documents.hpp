// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trireme::nn {

/// Microbatch::document_begin of rows of packed documents: the token `document_end` is the last of its document, the
/// next token the first of the next. A row begins a document, too, though it may be in the middle of one. Positions
/// (RoPE's, learned ones) continue over the row and are not reset, as in TorchTitan: RoPE depends on distances only.
/// inputs: int32 [B*T] on the host. Returns int32 [B*T].
[[nodiscard]] at::Tensor document_begins(const at::Tensor& inputs, std::int64_t seq_len, std::int64_t document_end);

}  // namespace trireme::nn
