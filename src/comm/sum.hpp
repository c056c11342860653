// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

/// The arithmetic of reductions: one order for all transports.
namespace trireme::comm {

/// A bf16 number's bits.
using Bf16 = std::uint16_t;

/// to[i] = from[i] rounded to nearest even; NaN stays NaN.
void round_to_bf16(const float* from, Bf16* to, std::int64_t count);
/// to[i] = from[i]: exact.
void widen(const Bf16* from, float* to, std::int64_t count);

/// out[i] (+)= ((terms[0][i] + terms[1][i]) + terms[2][i]) + ... in fp32, for i < count. One of the terms may be `out`
/// itself.
void sum_terms(std::span<const float* const> terms, float* out, std::int64_t count, bool accumulate);
void sum_terms(std::span<const Bf16* const> terms, float* out, std::int64_t count, bool accumulate);

}  // namespace trireme::comm
