// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/block_product.hpp"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "support/tensors.hpp"

namespace trireme::kernels {
namespace {

/// Every mixture of whole and broken tiles, against libtorch in fp64; C's neighbours stay as they are.
template <class Product>
void compare(const Product& product) {
  for (const std::int64_t m : {1, 5, 6, 13}) {
    for (const std::int64_t n : {1, 7, 8, 16, 23, 48, 64, 80, 131}) {
      for (const std::int64_t k : {1, 9, 64, 300}) {
        for (const bool add : {false, true}) {
          const at::Tensor a = at::randn({m, k + 3}), b = at::randn({k, n + 5}), c = at::randn({m, n + 2});
          const at::Tensor expected = c.to(at::kDouble);
          const at::Tensor part = expected.slice(1, 0, n);
          const at::Tensor sum = a.slice(1, 0, k).to(at::kDouble).mm(b.slice(1, 0, n).to(at::kDouble));
          add ? part.add_(sum) : part.copy_(sum);
          product(m, n, k, a.const_data_ptr<float>(), k + 3, b.const_data_ptr<float>(), n + 5,
                  c.mutable_data_ptr<float>(), n + 2, add);
          EXPECT_LT(test::relative_error(c, expected), 1e-6) << m << " " << n << " " << k << " " << add;
        }
      }
    }
  }
}

TEST(BlockProduct, AgreesWithFp64OnAnyCpu) { compare(block_product_portable); }
TEST(BlockProduct, AgreesWithFp64OnThisCpu) { compare(block_product); }

}  // namespace
}  // namespace trireme::kernels
