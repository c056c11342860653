// SPDX-License-Identifier: Apache-2.0
#include "kernels/block_product.hpp"

#include <ATen/native/CPUBlas.h>

namespace trireme::kernels {

void block_product(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride,
                   const float* b, std::int64_t b_stride, float* c, std::int64_t c_stride, bool add) {
  at::native::cpublas::brgemm(m, n, k, a_stride, b_stride, c_stride, add, a, b, c, /*is_vnni=*/false);
}

}  // namespace trireme::kernels
