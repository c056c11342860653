// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace trireme::kernels {

/// C = A B, or C += A B: the small product under the blocked algorithms. All fp32, row-major.
/// A: [m, k], B: [k, n], C: [m, n], with the given distances between rows. Runs on the calling thread.
/// libtorch's entrance to oneDNN's generated kernels (at full speed from 64 x 64 x 64), one kept per shape and thread:
/// so call it with few different shapes.
void block_product(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride,
                   const float* b, std::int64_t b_stride, float* c, std::int64_t c_stride, bool add);

}  // namespace trireme::kernels
