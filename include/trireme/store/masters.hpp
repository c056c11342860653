// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>

#include <bit>
#include <cstdint>
#include <span>

/// Masters in two halves: the nearest bf16 number, of two that are as near the larger magnitude, and the lower 16 bits
/// of the master. With ties to even, which is how the copy of fp32 masters is rounded, 65537 masters would round to one
/// bf16 number, one too many for 16 bits.
namespace trireme::store {

/// NaN becomes one NaN.
[[gnu::always_inline]] inline std::uint16_t gathered_bits(float master) {
  const std::uint32_t rounded = (std::bit_cast<std::uint32_t>(master) + 0x8000U) >> 16;
  return static_cast<std::uint16_t>(master == master ? rounded : 0x7fc0U);
}
/// Negative where the master was rounded away from zero.
[[gnu::always_inline]] inline std::int16_t remainder_bits(float master) {
  return static_cast<std::int16_t>(master == master ? std::bit_cast<std::uint32_t>(master) & 0xffffU : 0U);
}
[[gnu::always_inline]] inline float joined(std::uint16_t gathered, std::int16_t remainder) {
  return std::bit_cast<float>((std::uint32_t{gathered} << 16) +
                              static_cast<std::uint32_t>(static_cast<std::int32_t>(remainder)));
}

/// gathered: masters rounded, ties away from zero; remainder: what that leaves of them. As long as `masters`.
/// `join_masters` gives back the same bits (of NaN, a NaN).
void split_masters(std::span<const float> masters, std::span<c10::BFloat16> gathered,
                   std::span<std::int16_t> remainder);
void join_masters(std::span<const c10::BFloat16> gathered, std::span<const std::int16_t> remainder,
                  std::span<float> masters);

/// A remainder's words: it is a bf16 tensor in the host's memory.
[[nodiscard]] std::span<std::int16_t> words(const at::Tensor& remainder);

}  // namespace trireme::store
