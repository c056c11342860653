// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

/// Kernels for sums with bf16 on the wire. Pointers are device pointers; everything runs on the current stream.
namespace trireme::comm::cuda {

/// Rounds the first `count` columns of from [ranks, stride] to bf16, into to [ranks, count].
void pack_terms(const float* from, std::int64_t ranks, std::int64_t stride, std::int64_t count, c10::BFloat16* to);

/// to[i] (+)= the sum over r of terms[r, i], terms being [ranks, count]: in fp32, from rank 0 on. One pass over all.
void sum_terms(const c10::BFloat16* terms, std::int64_t ranks, std::int64_t count, float* to, bool accumulate);

/// The same sum, rounded to bf16.
void sum_terms(const c10::BFloat16* terms, std::int64_t ranks, std::int64_t count, c10::BFloat16* to);

/// Rounds from [elements] to bf16, into to [padded], with zeros at its end.
void pack_whole(const float* from, std::int64_t elements, std::int64_t padded, c10::BFloat16* to);

/// to [elements] = from.
void widen(const c10::BFloat16* from, std::int64_t elements, float* to);

}  // namespace trireme::comm::cuda
