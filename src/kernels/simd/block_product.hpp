// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace trireme::kernels {

/// The width that keeps block_product at full speed: n a multiple of it, and B's rows that far apart.
inline constexpr std::int64_t panel_width = 64;

/// C = A B, or C += A B: the small product under the blocked algorithms, on the calling thread. All fp32, row-major,
/// with the given distances between rows. A: [m, k], B: [k, n], C: [m, n]. Each element of C is summed in the order of
/// k, by fused multiply-adds where the CPU has them, whatever the sizes. B should stay in the second-level cache (64
/// KiB to 256 KiB).
void block_product(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride,
                   const float* b, std::int64_t b_stride, float* c, std::int64_t c_stride, bool add);

/// The same for CPUs with AVX-512: block_product calls it where it can.
void block_product_avx512(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride,
                          const float* b, std::int64_t b_stride, float* c, std::int64_t c_stride, bool add);
/// The same for any CPU.
void block_product_portable(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride,
                            const float* b, std::int64_t b_stride, float* c, std::int64_t c_stride, bool add);

}  // namespace trireme::kernels
