// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "trireme/kernels/attention.hpp"

/// Libraries that compute attention on a device.
namespace trireme::kernels {

/// flash, cudnn: libtorch's kernels, for bf16 and heads of a multiple of 8 up to 256 elements. dense: blocks of scores
/// in fp32 by plain matrix products, slow, for every type and size; the reference for the other two.
enum class AttentionLibrary : std::uint8_t { dense, flash, cudnn };

struct NamedAttention {
  AttentionLibrary library;
  std::string_view name;
};
/// All libraries with their names in texts.
inline constexpr std::array<NamedAttention, 3> attention_libraries{
    {{AttentionLibrary::dense, "dense"}, {AttentionLibrary::flash, "flash"}, {AttentionLibrary::cudnn, "cudnn"}}};
[[nodiscard]] std::string_view to_text(AttentionLibrary library);
/// Throws ConfigError with the allowed names.
[[nodiscard]] AttentionLibrary parse_attention_library(std::string_view text);

/// Selects `library`, by default flash; dense is used for unsupported shapes. Saved values (log-sum-exp) are the same
/// in all of them. Not while another thread computes.
void set_attention_library(AttentionLibrary library);
[[nodiscard]] AttentionLibrary attention_library();
/// Whether set_attention_library was called.
[[nodiscard]] bool attention_was_chosen();

/// Makes libtorch's device kernels sum in one order in every run: flash attention's backward, cuBLAS on several
/// streams. Costs some speed; measure_attention leaves cuDNN out then, which promises nothing. Call it before the first
/// product on a device.
void set_deterministic();

/// The faster of flash and cudnn in a forward and a backward of `shape` in bf16 on the current device, of those that
/// agree with dense there; dense where neither does, and flash alone where sums must have one order. Takes some 100 ms.
/// Ranks may differ: let rank 0 decide.
[[nodiscard]] AttentionLibrary measure_attention(const AttentionShape& shape);

namespace cuda {

/// causal_attention and its backward by a given library. Throws if it cannot run. Documents are computed one by one,
/// by flash where the library is cuDNN, and so are windows.
void causal_attention(AttentionLibrary library, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const AttentionShape& shape, const at::Tensor& out, const at::Tensor& logsumexp,
                      const at::Tensor& document_begin = {});
void causal_attention_backward(AttentionLibrary library, const at::Tensor& d_out, const at::Tensor& q,
                               const at::Tensor& k, const at::Tensor& v, const at::Tensor& out,
                               const at::Tensor& logsumexp, const AttentionShape& shape, const at::Tensor& d_q,
                               const at::Tensor& d_k, const at::Tensor& d_v, const at::Tensor& document_begin = {},
                               const Rotated& rotated = {});
[[nodiscard]] AttentionLibrary measure_attention(const AttentionShape& shape);

}  // namespace cuda

}  // namespace trireme::kernels
