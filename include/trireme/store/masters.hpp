// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>

#include <cstdint>
#include <span>

/// Masters in two halves: the nearest bf16 number, of two that are as near the larger magnitude, and the lower 16 bits
/// of the master. With ties to even, which is how the copy of fp32 masters is rounded, 65537 masters would round to one
/// bf16 number, one too many for 16 bits.
namespace trireme::store {

/// gathered: masters rounded to bf16, ties away from zero; remainder: the difference. Both of the size of `masters`.
/// `join_masters` restores the same bits (for NaN, a NaN).
void split_masters(std::span<const float> masters, std::span<c10::BFloat16> gathered,
                   std::span<std::int16_t> remainder);
void join_masters(std::span<const c10::BFloat16> gathered, std::span<const std::int16_t> remainder,
                  std::span<float> masters);

/// A remainder's words: it is a bf16 tensor in the host's memory.
[[nodiscard]] std::span<std::int16_t> words(const at::Tensor& remainder);

}  // namespace trireme::store
