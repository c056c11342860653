// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>

#include <cstdint>

namespace trireme::kernels {

// Conversions between fp32 and bf16, over the whole team of threads. To bf16 rounds to nearest, ties to even; NaN stays
// NaN.

/// to[i] = from[i], n elements; the ranges must not overlap.
void cast(const float* from, c10::BFloat16* to, std::int64_t n);
void cast(const c10::BFloat16* from, float* to, std::int64_t n);

/// to[i] += from[i].
void add_into(const float* from, float* to, std::int64_t n);
void add_into(const c10::BFloat16* from, float* to, std::int64_t n);

/// Copies contiguous `from` into contiguous `to` of the same element count, converting where their types differ.
void cast(const at::Tensor& from, const at::Tensor& to);

/// Adds contiguous `from` (fp32 or bf16) to contiguous fp32 `to`.
void add_into(const at::Tensor& from, const at::Tensor& to);

}  // namespace trireme::kernels
